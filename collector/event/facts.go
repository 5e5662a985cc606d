package event

import (
	"fmt"

	"github.com/kernosis/kernosis/collector/display"
)

const (
	// maxList bounds each list; maxText bounds a line of it, in bytes.
	maxList = 8
	maxText = 240
	// maxFrames is how many frames of a stack are shown: the innermost show what it waits for.
	maxFrames = 4
	// throttledMuch is the percentage of time without CPU from which on throttling explains a
	// delay: below it a process still gets most of the CPU time it needs.
	throttledMuch = 25
)

// Facts are the details of one occurrence of a problem. Text is escaped and bounded.
type Facts struct {
	Kind      Kind     `json:"kind,omitempty"`
	Verdict   string   `json:"verdict,omitempty"`   // as in the event: accept-queue-full, memcg, EIO
	Cause     string   `json:"cause,omitempty"`     // the verdict in words, with figures; empty: the message says it
	Because   string   `json:"because,omitempty"`   // what explains the cause
	State     string   `json:"state,omitempty"`     // progress: "liveness 2 of 3 towards restart"
	Container string   `json:"container,omitempty"` // name, or 12 digits of the id; empty: none, or not known
	Evidence  []string `json:"evidence,omitempty"`
	Excluded  []string `json:"excluded,omitempty"`
	Doc       string   `json:"doc,omitempty"` // page: problems/OOMKilling
}

// Facts returns an event's facts, none for nil, without judgement: the verdict is the event's own.
func (e *Event) Facts() Facts {
	if e == nil {
		return Facts{}
	}
	f := Facts{Kind: e.Kind}
	if c := e.Container; c != nil {
		f.Container = short(c.ID)
	}
	if p := e.payload(); p != nil {
		p.facts(e, &f)
	}
	f.bound()
	return f
}

func (f *Facts) add(format string, args ...any) {
	f.Evidence = append(f.Evidence, fmt.Sprintf(format, args...))
}

func (f *Facts) not(format string, args ...any) {
	f.Excluded = append(f.Excluded, fmt.Sprintf(format, args...))
}

// bound escapes and truncates text from others.
func (f *Facts) bound() {
	for _, w := range f.words() {
		*w.at = display.Safe(*w.at, maxText)
	}
	f.Kind = Kind(display.Safe(string(f.Kind), 64))
	for _, list := range []*[]string{&f.Evidence, &f.Excluded} {
		*list = (*list)[:min(len(*list), maxList)]
		for i, s := range *list {
			(*list)[i] = display.Safe(s, maxText)
		}
	}
}

// mounts adds where a device is mounted: people know it by that.
func (f *Facts) mounts(d *Device) {
	if d == nil {
		return
	}
	for i, m := range d.Mounts {
		if i == 2 {
			f.add("%s: %d more mounts", d.Name, len(d.Mounts)-i)
			return
		}
		f.add("%s is mounted at %s (%s)", d.Name, m.Path, m.FSType)
	}
}

// Symptom reports whether the event is an effect that was noticed, a failed probe or connection,
// not a fault of the kernel.
func (f *Facts) Symptom() bool {
	stem := f.Kind.Stem()
	return stem == string(SockFail) || stem == string(Probe)
}

// Vague reports whether the verdict says what is missing (an answer) while Because has the cause.
func (f *Facts) Vague() bool {
	switch f.Verdict {
	case VerdictSilent, VerdictSlow, VerdictExecSlow, VerdictOther:
		return f.Because != ""
	}
	return false
}
