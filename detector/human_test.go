package detector

import (
	"math"
	"testing"
	"time"
)

func TestHumanBytes(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 1: "1 B", 1000: "1000 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1.5 KiB", 4096: "4 KiB",
		32 << 20: "32 MiB", 31<<20 + 5: "31 MiB", 1503238553: "1.4 GiB", 3 << 29: "1.5 GiB", 900000000: "858 MiB",
		1<<20 - 1: "1 MiB", 2<<20 - 1: "2 MiB", 10<<30 - 1: "10 GiB", -5: "-5 B", math.MaxInt64: "8 EiB",
	} {
		if have := humanBytes(n); have != want {
			t.Errorf("humanBytes(%d) = %q, want %q", n, have, want)
		}
	}
}

func TestHumanDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 40 * time.Millisecond: "40ms", 1234 * time.Millisecond: "1.2s", 119600 * time.Millisecond: "2m",
		125 * time.Second: "2m5s", time.Hour: "1h", 3 * time.Microsecond: "3µs", -time.Minute: "-1m",
	} {
		if have := humanDuration(d); have != want {
			t.Errorf("humanDuration(%v) = %q, want %q", d, have, want)
		}
	}
}
