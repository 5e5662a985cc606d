package kmsg

import (
	"strconv"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/logs"
)

// position is how far the log was handed over.
type position struct {
	boot string // the kernel's random boot id
	next uint64 // the first sequence number that was not handed over

	// offset is the difference between CLOCK_BOOTTIME and the clock of the time stamps, as
	// measured on records that arrived while the reader waited for them; 0 if there were none. The
	// two clocks drift apart, and old records don't show by how much.
	offset time.Duration
}

// text returns the position as it is saved: "BOOTID 123", or "BOOTID 123 4.5ms". Newer versions
// may add words, which parsePosition ignores.
func (p position) text() logs.Position {
	text := p.boot + " " + strconv.FormatUint(p.next, 10)
	if p.offset != 0 {
		text += " " + p.offset.String()
	}
	return logs.Position(text)
}

// parsePosition returns false for text that is not a Position of this package.
func parsePosition(text logs.Position) (p position, ok bool) {
	boot, rest, _ := strings.Cut(string(text), " ")
	number, rest, _ := strings.Cut(rest, " ")
	clock, _, _ := strings.Cut(rest, " ")
	next, err := strconv.ParseUint(number, 10, 64)
	p = position{boot: boot, next: next}
	if clock != "" && err == nil {
		p.offset, err = time.ParseDuration(clock)
	}
	return p, boot != "" && err == nil
}
