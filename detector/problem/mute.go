package problem

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Mute keeps the problems of one rule, or of some of its groups, from being
// announced until a time. The problems continue otherwise.
type Mute struct {
	Rule string `json:"rule"`
	// Where maps fields of the rule's groupBy to the text that they must match;
	// empty: all problems of the rule.
	Where  map[string]string `json:"where,omitempty"`
	Until  time.Time         `json:"until"`
	Reason string            `json:"reason"` // why, written by a person
}

// Equal reports whether both mutes are the same.
func (m *Mute) Equal(o *Mute) bool {
	return m.Rule == o.Rule && m.Until.Equal(o.Until) && m.Reason == o.Reason && maps.Equal(m.Where, o.Where)
}

// Subject returns what is muted: the rule, and its fields with quoted values.
func (m *Mute) Subject() string {
	text := []string{m.Rule}
	for _, field := range slices.Sorted(maps.Keys(m.Where)) {
		text = append(text, field+"="+strconv.Quote(m.Where[field]))
	}
	return strings.Join(text, " ")
}

// MuteChange reports that a mute began, or ended because it expired or was removed.
type MuteChange struct {
	Mute
	Over bool `json:"over,omitempty"`
}
