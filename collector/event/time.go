package event

import (
	"fmt"
	"time"
)

// Duration is a time.Duration that is text ("2m5s") in JSON.
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil {
		return fmt.Errorf("duration %q: want a number with a unit, such as 90s", b)
	}
	*d = Duration(v)
	return nil
}

// String implements fmt.Stringer.
func (d Duration) String() string { return time.Duration(d).String() }

// Moment is a point of time on both clocks of a machine.
type Moment struct {
	Wall time.Time     `json:"wall"` // wall clock, for people; somebody may set it back or forward
	Boot time.Duration `json:"boot"` // since boot, suspend included (CLOCK_BOOTTIME); used to measure periods
}

// Add returns the moment d later, or earlier if d is negative.
func (m Moment) Add(d time.Duration) Moment { return Moment{m.Wall.Add(d), m.Boot + d} }
