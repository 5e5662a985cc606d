package runner

import (
	"maps"
	"slices"
	"strings"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/diagnose/operation"
)

// Bounds of a node's record, besides those of package operation.
const (
	maxKey    = 128
	maxReason = 128
)

// bound returns a copy of results that is within the bounds and printable. It visits keys in sorted
// order, so that equal results are truncated alike.
func bound(results map[string]string) (out map[string]string, truncated bool) {
	if len(results) == 0 {
		return nil, false
	}
	out, left := map[string]string{}, operation.MaxResults
	for _, key := range sortedKeys(results) {
		name := display.Safe(key, maxKey)
		if len(out) == operation.MaxKeys || len(key) > maxKey || name == "" || len(name) > left {
			truncated = true
			continue
		}
		value := results[key]
		if most := min(operation.MaxResult, left-len(name)); len(value) > most {
			value, truncated = display.Prefix(value, most), true
		}
		value = display.SafeLines(value)
		if most := min(operation.MaxResult, left-len(name)); len(value) > most { // escaping makes it longer
			value, truncated = display.Prefix(value, most), true
		}
		out[name] = value
		left -= len(name) + len(value)
	}
	return out, truncated
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// oneLine returns s escaped to one line and cut to MaxMessage bytes, escapes included.
func oneLine(s string) string { return display.Bounded(s, operation.MaxMessage) }

// word returns s reduced to what the API allows as a reason: letters and digits, starting with a
// letter. If nothing remains, it returns otherwise.
func word(s, otherwise string) string {
	s = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, s)
	s = strings.TrimLeft(s, "0123456789")
	if s == "" {
		return otherwise
	}
	return s[:min(len(s), maxReason)]
}
