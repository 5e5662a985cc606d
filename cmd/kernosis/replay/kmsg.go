package replay

import (
	"fmt"

	"github.com/kernosis/kernosis/collector/hostfs"
)

// parseKmsg reads the first line of a record of /dev/kmsg.
func parseKmsg(b []byte) (line, error) {
	var r hostfs.KernelRecord
	if _, err := hostfs.ParseKernelRecord(b, &r); err != nil {
		return line{}, fmt.Errorf("%w", err)
	}
	if r.Time.Seconds() > maxSeconds {
		return line{}, errLine
	}
	return line{stamp: r.Time, level: r.Level, facility: r.Facility, text: r.Text, further: r.Fragment, kmsg: true}, nil
}
