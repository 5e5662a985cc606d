package problem

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Mute keeps the problems of one rule, or those of some of its groups, from
// being announced until a time. They go on otherwise.
type Mute struct {
	Rule string `json:"rule"`
	// Where gives fields of the rule's groupBy the text they must have; empty:
	// all problems of the rule.
	Where  map[string]string `json:"where,omitempty"`
	Until  time.Time         `json:"until"`
	Reason string            `json:"reason"` // why, in a person's words
}

// Equal reports whether both say the same.
func (m *Mute) Equal(o *Mute) bool {
	return m.Rule == o.Rule && m.Until.Equal(o.Until) && m.Reason == o.Reason && maps.Equal(m.Where, o.Where)
}

// Subject names what is muted: the rule, and its fields with quoted values.
func (m *Mute) Subject() string {
	var b strings.Builder
	b.WriteString(m.Rule)
	for _, field := range slices.Sorted(maps.Keys(m.Where)) {
		b.WriteByte(' ')
		b.WriteString(field)
		b.WriteByte('=')
		b.WriteString(strconv.Quote(m.Where[field]))
	}
	return b.String()
}

// MuteChange reports that a mute began, or is over because its time has come or
// because somebody took it back.
type MuteChange struct {
	Mute
	Over bool `json:"over,omitempty"`
}
