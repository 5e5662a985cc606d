package journald

import (
	"strconv"
	"strings"

	"github.com/kernosis/kernosis/collector/logs"
)

// maxCursor is longer than any cursor: five numbers of at most 32 digits.
const maxCursor = 256

// position is how far a journal was handed over.
type position struct {
	filter string // checksum of the filter
	cursor string // of the last entry that was handed over; "" if there was none
	since  int64  // without a cursor: where reading began (Unix, µs)
}

// text returns the position as it is saved: "FILTER CURSOR" or "FILTER @TIME".
func (p position) text() logs.Position {
	if p.cursor == "" {
		return logs.Position(p.filter + " @" + strconv.FormatInt(p.since, 10))
	}
	return logs.Position(p.filter + " " + p.cursor)
}

// parsePosition returns false for text that is not a Position of this package.
func parsePosition(text logs.Position) (p position, ok bool) {
	filter, where, _ := strings.Cut(string(text), " ")
	if digits, ok := strings.CutPrefix(where, "@"); ok {
		since, err := strconv.ParseInt(digits, 10, 64)
		return position{filter: filter, since: since}, filter != "" && err == nil && since >= 0
	}
	return position{filter: filter, cursor: where}, filter != "" && isCursor(where)
}

// isCursor reports whether journalctl accepts s as a cursor: names of one letter with hexadecimal
// numbers.
func isCursor(s string) bool {
	if s == "" || len(s) > maxCursor {
		return false
	}
	for part := range strings.SplitSeq(s, ";") {
		if len(part) < 3 || part[0] < 'a' || part[0] > 'z' || part[1] != '=' || strings.Trim(part[2:], "0123456789abcdef") != "" {
			return false
		}
	}
	return true
}
