package detector

import (
	"strconv"
	"strings"
	"time"
)

// humanBytes writes a size in binary units with at most one decimal: 31 MiB, 1.5 GiB.
func humanBytes(n int64) string {
	if n < 0 {
		return strconv.FormatInt(n, 10) + " B"
	}
	units := [...]string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	unit, size := 0, uint64(1)
	// The next unit begins where this one would round to 1024.
	for unit < len(units)-1 && uint64(n) >= size*1024-size/2 {
		unit, size = unit+1, size*1024
	}
	// Below ten a decimal matters; above, it is noise to the reader.
	if tenths := (uint64(n)%size*10 + size/2) / size; uint64(n) < 10*size && unit > 0 && tenths%10 != 0 {
		return strconv.FormatUint(uint64(n)/size, 10) + "." + strconv.FormatUint(tenths, 10) + " " + units[unit]
	}
	return strconv.FormatUint((uint64(n)+size/2)/size, 10) + " " + units[unit]
}

// humanDuration writes a duration with the digits a person reads: 2m5s, 1.3s, 40ms.
func humanDuration(d time.Duration) string {
	switch abs := d.Abs(); {
	case abs >= 10*time.Second:
		d = d.Round(time.Second)
	case abs >= time.Second:
		d = d.Round(100 * time.Millisecond)
	case abs >= time.Millisecond:
		d = d.Round(time.Millisecond)
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
