package kmsg

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/kernosis/kernosis/collector/logs"
)

// ErrPosition is returned for what is not a Position of this package.
var ErrPosition = errors.New("not a position in the kernel's log")

// position is up to where the log was handed over.
type position struct {
	boot string // the kernel's random boot id
	next uint64 // the first sequence number that was not
}

// text returns the position as it is saved: "BOOTID 123".
func (p position) text() logs.Position {
	return logs.Position(p.boot + " " + strconv.FormatUint(p.next, 10))
}

func parsePosition(text logs.Position) (position, error) {
	boot, number, ok := strings.Cut(string(text), " ")
	next, err := strconv.ParseUint(number, 10, 64)
	if !ok || boot == "" || err != nil {
		return position{}, fmt.Errorf("%.100q: %w", text, ErrPosition)
	}
	return position{boot: boot, next: next}, nil
}
