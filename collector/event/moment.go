package event

import "time"

// Moment is a point of time on both clocks of a machine.
type Moment struct {
	Wall time.Time     `json:"wall"` // what the clock says then: for people. Somebody may set it back or forward
	Boot time.Duration `json:"boot"` // since boot, suspend included (CLOCK_BOOTTIME): what periods are measured with
}

// Add returns the moment a period later, or earlier.
func (m Moment) Add(d time.Duration) Moment { return Moment{m.Wall.Add(d), m.Boot + d} }
