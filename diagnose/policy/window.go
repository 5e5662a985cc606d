package policy

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // what a policy means does not depend on the image that the controller is in

	"github.com/robfig/cron/v3"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// window is a recurring maintenance window.
type window struct {
	schedule cron.Schedule
	duration time.Duration
	zone     *time.Location
}

func newWindow(w *v1alpha1.MaintenanceWindow) (*window, error) {
	name := cmp.Or(w.TimeZone, "UTC")
	if name == "Local" { // the controller's own zone, which nobody intends
		return nil, errors.New(`timeZone: "Local" is not in the IANA database; want a zone such as Europe/Berlin`)
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("timeZone: %w", err)
	}
	if n := len(strings.Fields(w.Schedule)); n != 5 { // the parser accepts @daily and TZ= too
		return nil, fmt.Errorf("schedule: %d fields, want 5", n)
	}
	schedule, err := cron.ParseStandard(w.Schedule)
	if err != nil {
		return nil, fmt.Errorf("schedule: %w", err)
	}
	if w.Duration.Duration <= 0 {
		return nil, fmt.Errorf("duration: %s: want more than 0s", w.Duration.Duration)
	}
	return &window{schedule, w.Duration.Duration, zone}, nil
}

// open reports whether the window is open at a time. If not, next is when it opens next; zero:
// never, as on 30 February.
//
// A start time that is skipped by a clock change does not occur on that day; one that occurs twice
// opens the window twice.
func (w *window) open(now time.Time) (open bool, next time.Time) {
	now = now.In(w.zone)
	next = w.schedule.Next(now.Add(-w.duration)) // the first start after it
	if next.IsZero() {
		return false, next
	}
	return !next.After(now), next
}
