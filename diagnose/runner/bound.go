package runner

import (
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kernosis/kernosis/collector/event"
)

// What is kept of one node.
const (
	MaxResult  = 2 << 10 // bytes of a value
	MaxResults = 8 << 10 // bytes of all keys and values
	maxKeys    = 64
	maxKey     = 128
	maxMessage = 1024
	maxReason  = 128
)

// bound returns results as they are kept. Keys are taken in their order, so that equal
// results are cut alike.
func bound(results map[string]string) (out map[string]string, truncated bool) {
	if len(results) == 0 {
		return nil, false
	}
	out, left := map[string]string{}, MaxResults
	for _, key := range sortedKeys(results) {
		name := event.SafeText(key, maxKey)
		if len(out) == maxKeys || len(key) > maxKey || name == "" || len(name) > left {
			truncated = true
			continue
		}
		value := results[key]
		if most := min(MaxResult, left-len(name)); len(value) > most {
			value, truncated = cut(value, most), true
		}
		value = lines(value)
		if most := min(MaxResult, left-len(name)); len(value) > most { // escapes are longer
			value, truncated = cut(value, most), true
		}
		out[name] = value
		left -= len(name) + len(value)
	}
	return out, truncated
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// cut returns at most limit bytes, whole characters.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}

// lines makes text of others safe to keep and show, but for line breaks and tabs.
func lines(s string) string {
	var b strings.Builder
	for {
		i := strings.IndexAny(s, "\n\t")
		if i < 0 {
			break
		}
		b.WriteString(event.SafeText(s[:i], i))
		b.WriteByte(s[i])
		s = s[i+1:]
	}
	b.WriteString(event.SafeText(s, len(s)))
	return b.String()
}

// oneLine is a message as it is kept, its escapes counted.
func oneLine(s string) string { return short(event.SafeText(s, maxMessage), maxMessage) }

// short cuts what is safe already, and marks the cut.
func short(s string, limit int) string {
	const mark = "…"
	if len(s) <= limit {
		return s
	}
	return cut(s, limit-len(mark)) + mark
}

// word is a reason that the API takes: letters and digits, a letter first.
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
