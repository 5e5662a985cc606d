package chaostest_test

import (
	"fmt"
	"strconv"
	"time"

	"github.com/kernosis/kernosis/collector/hostfs"
)

// happening is something that has happened n times at once.
type happening struct {
	at time.Duration // since boot
	n  int
}

// happenings are what has happened, in order.
type happenings []happening

func (h *happenings) add(n int) { *h = append(*h, happening{hostfs.BootTime(), n}) }

func (h happenings) total() (sum int) {
	for _, one := range h {
		sum += one.n
	}
	return sum
}

// in returns how much of it happened in one of the windows, and times how much, counted for each window.
func (h happenings) in(windows []window) (sum, times int) {
	for _, one := range h {
		found := false
		for _, w := range windows {
			if w.has(one.at) {
				times += one.n
				found = true
			}
		}
		if found {
			sum += one.n
		}
	}
	return sum, times
}

// bounds are how often something has to be, and may be, reported.
type bounds struct{ least, most int }

func (b bounds) String() string {
	if b.least == b.most {
		return strconv.Itoa(b.least)
	}
	return fmt.Sprintf("%d to %d", b.least, b.most)
}

// lineBounds: lines that the agent forgot are still in the log, so it may count them again.
func (w *world) lineBounds() bounds {
	_, again := w.lines.in(w.losses.closed)
	return bounds{w.lines.total(), w.lines.total() + again}
}

// killBounds: kills that the agent forgot are lost, and those that it counted as lost.
func (w *world) killBounds() bounds {
	kills := happenings{}
	for _, v := range w.known() {
		kills = append(kills, happening{v.at, 1})
	}
	forgotten, _ := kills.in(w.losses.closed)
	return bounds{kills.total() - forgotten - int(w.named().oomRecords), kills.total()}
}
