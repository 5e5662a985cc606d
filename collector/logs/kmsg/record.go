package kmsg

import "github.com/kernosis/kernosis/collector/hostfs"

// Record is one record of /dev/kmsg.
type Record = hostfs.KernelRecord

// Parse reads the record in b, as one read of /dev/kmsg returns it; see
// [hostfs.ParseKernelRecord].
func Parse(b []byte, r *Record) (seqOK bool, err error) { return hostfs.ParseKernelRecord(b, r) }
