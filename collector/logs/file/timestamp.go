package file

import (
	"path/filepath"
	"time"

	"github.com/kernosis/kernosis/collector/hostfs"
)

// layout is a layout of package time, and which parts of a time it leaves out.
type layout struct {
	text          string
	location      *time.Location
	noYear, noDay bool // noDay: neither month nor day
}

// parseLayout determines what a layout leaves out, by formatting times that differ in that part
// only. A nil location means the local one. ok is false for a layout without any part of a time.
func parseLayout(text string, location *time.Location) (l layout, ok bool) {
	if location == nil {
		location = time.Local
	}
	// A time whose parts all differ from those of the zero time.
	t := time.Date(2021, time.November, 23, 17, 48, 59, 987654321, time.UTC)
	formatted := t.Format(text)
	same := func(u time.Time) bool { return u.Format(text) == formatted }
	l = layout{
		text: text, location: location,
		noYear: same(t.AddDate(28, 0, 0)), // the weekdays are the same
		noDay:  same(t.AddDate(0, 1, 0)) && same(t.AddDate(0, 0, 7)),
	}
	return l, !(l.noYear && l.noDay && same(t.Add(time.Minute)) && same(t.Add(time.Hour)) && same(t.Add(time.Second)))
}

// slack is how far in the future a time without a year or day may be before it is moved to the
// past: writers' clocks and time zones differ.
const slack = 24 * time.Hour

// parse parses a time. For the parts that the layout leaves out it assumes the latest possible
// time, at most slack after now.
func (l *layout) parse(text string, now time.Time) (time.Time, error) {
	t, err := time.ParseInLocation(l.text, text, l.location)
	if err != nil {
		return time.Time{}, err
	}
	if !l.noYear {
		return t, nil
	}
	here := now.In(t.Location())
	year, month, day := here.Date()
	if l.noDay {
		// A time of day, of today or of yesterday. If it is up to an hour ahead, the writer's
		// clock is ahead; the line is not 23 hours old.
		t = onDay(t, year, month, day)
		if t.After(now.Add(time.Hour)) {
			t = onDay(t, year, month, day-1)
		}
		return t, nil
	}
	// Four years back there is a 29 February, except around 2100 and the like.
	for y := year + 1; y > year-9; y-- {
		u := onDay(t, y, t.Month(), t.Day())
		if u.Month() == t.Month() && !u.After(now.Add(slack)) {
			return u, nil
		}
	}
	return onDay(t, year, t.Month(), t.Day()), nil
}

// onDay returns t's time of day on another day.
func onDay(t time.Time, year int, month time.Month, day int) time.Time {
	return time.Date(year, month, day, t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), t.Location())
}

// maxZone bounds /etc/localtime, which has some 4 KiB.
const maxZone = 1 << 20

// hostZone returns the time zone of the host mounted at root, which its daemons use for times
// without a zone. It returns nil if it is unknown, or if root is this file system.
func hostZone(root string) *time.Location {
	if root == "" || filepath.Clean(root) == "/" {
		return nil
	}
	data, err := hostfs.New(root).ReadFile("/etc/localtime", maxZone)
	if err != nil {
		return nil
	}
	zone, err := time.LoadLocationFromTZData("Local", data)
	if err != nil {
		return nil
	}
	return zone
}
