package event

import "time"

// Moment is a point of time on both clocks of a machine.
type Moment struct {
	Wall time.Time     `json:"wall"` // wall clock, for people; somebody may set it back or forward
	Boot time.Duration `json:"boot"` // since boot, suspend included (CLOCK_BOOTTIME); used to measure periods
}

// Add returns the moment d later, or earlier if d is negative.
func (m Moment) Add(d time.Duration) Moment { return Moment{m.Wall.Add(d), m.Boot + d} }
