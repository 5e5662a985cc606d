package detector

import (
	"strings"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"

	"github.com/kernosis/kernosis/collector/event"
)

// activation gives expressions the fields of one event. It is reused for
// all events, so that an evaluation allocates only for the fields it reads
// (and nothing for fields with few values).
type activation struct {
	ev    *event.Event
	known map[string]ref.Val // cached CEL values of fields with few values
}

// maxKnown bounds the cached texts: normally there are a few dozen, and a
// source that invents texts must not grow the map.
const maxKnown = 1024

func newActivation() *activation { return &activation{known: make(map[string]ref.Val)} }

// ResolveName implements interpreter.Activation.
func (a *activation) ResolveName(name string) (any, bool) {
	f := event.FieldByName(name)
	group, isMatch := strings.CutPrefix(name, matchPrefix)
	if f == nil && !isMatch {
		return nil, false
	}
	if a.ev == nil {
		return types.NewErr("no event"), true
	}
	if isMatch {
		return types.String(captured(a.ev, group).Text), true
	}
	v := f.Read(a.ev)
	if f.Few && f.Type == event.TypeString {
		return a.keep(v.Text), true
	}
	return celValue(&v, f.Type), true
}

func (a *activation) keep(s string) ref.Val {
	if v, ok := a.known[s]; ok {
		return v
	}
	v := types.String(s)
	if len(a.known) < maxKnown && len(s) <= 64 {
		a.known[s] = v
	}
	return v
}

// Parent implements interpreter.Activation. It returns nil.
func (a *activation) Parent() interpreter.Activation { return nil }
