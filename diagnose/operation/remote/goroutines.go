package remote

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kernosis/kernosis/collector/display"
)

// stackSummary counts goroutines in the text of their stacks (debug=2) while it is written. A line
// "goroutine 7 [chan receive, 12 minutes]:" starts each goroutine.
type stackSummary struct {
	line    []byte // beginning of an incomplete line
	count   int
	states  map[string]int
	longest int // minutes
}

const (
	maxStackLine      = 512 // bytes of a line that are parsed
	maxStates         = 32  // distinct states that are counted
	maxStatesReported = 8
)

// goroutineLine is the first line of a goroutine. A process may print more between number and
// state: gp=0x… m=nil.
var goroutineLine = regexp.MustCompile(`^goroutine \d+ [^\[]*\[(.*?)\]:`)

// Write parses the next part of the text.
func (s *stackSummary) Write(b []byte) (int, error) {
	n := len(b)
	for {
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			s.line = append(s.line, b[:min(len(b), maxStackLine-len(s.line))]...)
			return n, nil
		}
		s.line = append(s.line, b[:min(i, maxStackLine-len(s.line))]...)
		s.take(string(s.line))
		s.line, b = s.line[:0], b[i+1:]
	}
}

func (s *stackSummary) take(line string) {
	m := goroutineLine.FindStringSubmatch(line)
	if m == nil {
		return
	}
	s.count++
	state, more, _ := strings.Cut(m[1], ", ")
	for part := range strings.SplitSeq(more, ", ") {
		if text, ok := strings.CutSuffix(part, " minutes"); ok {
			if m, err := strconv.Atoi(text); err == nil {
				s.longest = max(s.longest, m)
			}
		}
	}
	state = display.Safe(state, 64)
	if _, known := s.states[state]; !known && len(s.states) >= maxStates {
		state = "other"
	}
	s.states[state]++
}

// addTo adds the summary to results.
func (s *stackSummary) addTo(results map[string]string) {
	results["goroutines"] = strconv.Itoa(s.count)
	results["longestWait"] = strconv.Itoa(s.longest) + "m"
	names := slices.SortedFunc(maps.Keys(s.states), func(a, b string) int {
		return cmp.Or(cmp.Compare(s.states[b], s.states[a]), cmp.Compare(a, b))
	})
	var parts []string
	for i, name := range names {
		if i == maxStatesReported {
			parts = append(parts, fmt.Sprintf("and %d others", len(names)-i))
			break
		}
		parts = append(parts, fmt.Sprintf("%s %d", name, s.states[name]))
	}
	results["states"] = strings.Join(parts, "; ")
}
