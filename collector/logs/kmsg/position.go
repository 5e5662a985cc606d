package kmsg

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/logs"
)

// ErrPosition is returned for what is not a Position of this package.
var ErrPosition = errors.New("not a position in the kernel's log")

// position is up to where the log was handed over.
type position struct {
	boot string // the kernel's random boot id
	next uint64 // the first sequence number that was not

	// offset is from the clock that stamps records to CLOCK_BOOTTIME, as measured on records
	// that arrived while the reader waited for them; 0: none did. The two clocks drift apart,
	// and records that are old when they are read show nothing of it.
	offset time.Duration
}

// text returns the position as it is saved: "BOOTID 123", or "BOOTID 123 4.5ms". Newer
// versions may add words, which are left aside.
func (p position) text() logs.Position {
	text := p.boot + " " + strconv.FormatUint(p.next, 10)
	if p.offset != 0 {
		text += " " + p.offset.String()
	}
	return logs.Position(text)
}

func parsePosition(text logs.Position) (position, error) {
	boot, rest, ok := strings.Cut(string(text), " ")
	number, rest, _ := strings.Cut(rest, " ")
	clock, _, _ := strings.Cut(rest, " ")
	next, err := strconv.ParseUint(number, 10, 64)
	p := position{boot: boot, next: next}
	if clock != "" && err == nil {
		p.offset, err = time.ParseDuration(clock)
	}
	if !ok || boot == "" || err != nil {
		return position{}, fmt.Errorf("%.100q: %w", text, ErrPosition)
	}
	return p, nil
}
