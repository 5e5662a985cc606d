package detector

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"cel.dev/cel-go/common/types"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// plain generates random expressions that have a direct form.
type plain struct{ *rand.Rand }

func (p plain) of(forms ...func() string) string { return forms[p.IntN(len(forms))]() }

func (p plain) one(of ...string) string { return of[p.IntN(len(of))] }

func (p plain) word() string {
	return p.one("event.scope", "task.comm", "event.trigger", "event.verdict", "cgroup.path", "log.text", `""`, `"t"`, `"memcg"`, "'é\\n'", `"refused"`)
}

func (p plain) number() string {
	return p.one("task.pid", "event.limit", "event.anonRSS", "event.oomScoreAdj", "-1", "0", "1", "1000000000000")
}

func (p plain) duration() string {
	return p.one("event.blockedFor", "event.duration", "duration('1ns')", "duration('-1.5s')", "duration('2562047h')")
}

func (p plain) truth(depth int) string {
	compare := func() string {
		return p.of(
			func() string { return p.word() + p.one(" == ", " != ") + p.word() },
			func() string { return p.number() + p.one(" == ", " != ", " < ", " <= ", " > ", " >= ") + p.number() },
			func() string {
				return p.duration() + p.one(" == ", " != ", " < ", " <= ", " > ", " >= ") + p.duration()
			},
			func() string {
				return fmt.Sprintf("%s.%s(%s)", p.word(), p.one("contains", "startsWith", "endsWith"), p.word())
			},
			func() string { return p.word() + p.one(" in ['t', 'memcg']", " in ['']", " in []") },
			func() string { return p.one("event.along", "event.approximate", "true", "false") },
		)
	}
	if depth == 0 {
		return compare()
	}
	d := depth - 1
	return p.of(compare,
		func() string { return "!(" + p.truth(d) + ")" },
		func() string { return "(" + p.truth(d) + ")" + p.one(" && ", " || ") + "(" + p.truth(d) + ")" },
		func() string { return fmt.Sprintf("(%s ? %s : %s)", p.truth(d), p.truth(d), p.truth(d)) },
	)
}

func (p plain) text(depth int) string {
	if depth == 0 {
		return p.word()
	}
	d := depth - 1
	return p.of(p.word,
		func() string { return p.text(d) + " + " + p.text(d) },
		func() string { return fmt.Sprintf("(%s ? %s : %s)", p.truth(d), p.text(d), p.text(d)) },
		func() string { return "humanBytes(" + p.number() + ")" },
		func() string { return "humanDuration(" + p.duration() + ")" },
	)
}

// The direct form of an expression returns the same as CEL, for events with all, no and some
// fields.
func TestDirectFormIsCEL(t *testing.T) {
	c, err := newCompiler()
	if err != nil {
		t.Fatal(err)
	}
	seed := rand.Uint64()
	p := plain{rand.New(rand.NewPCG(seed, 0))}
	other := full()
	other.OOMKill.Scope, other.OOMKill.Along, other.OOMKill.Trigger = "global", false, nil
	other.Task.Comm, other.SockFail.Verdict = "é\n", "refused"
	events := []*event.Event{full(), {}, other}
	wrong := 0
	for i := range testenv.Cases(t, 2000) {
		source := p.truth(3)
		if i%2 == 0 {
			source = p.text(3)
		}
		x, errs := c.compile(source)
		if len(errs) > 0 {
			t.Fatalf("seed %d: %s: %v", seed, source, errs)
		}
		if x.direct.truth == nil && x.direct.text == nil {
			t.Errorf("seed %d: no direct form of %s", seed, source)
			continue
		}
		a := newActivation()
		for _, a.ev = range events {
			want, _, err := x.program.Eval(a)
			if err != nil {
				t.Fatalf("seed %d: %s: %v", seed, source, err)
			}
			if x.direct.truth != nil {
				if got := x.direct.truth(a.ev); types.Bool(got) != want {
					t.Errorf("seed %d: %s is %v, with CEL %v", seed, source, got, want)
				}
			} else if got := string(x.direct.text(a.ev, nil)); types.String(got) != want {
				t.Errorf("seed %d: %s is %q, with CEL %q", seed, source, got, want)
			}
		}
		if t.Failed() {
			if wrong++; wrong > 5 {
				break
			}
		}
	}
}

// Other expressions have no direct form, because they can fail or need memory.
func TestNoDirectForm(t *testing.T) {
	c, err := newCompiler()
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range []string{
		"1 / task.pid == 1", "task.pid + 1 == 2", "int(event.scope) > 1", "event.scope.size() > 1", "event.scope.matches('m.*')",
		"'m' in event.evidence", "pod.labels.app == 'a'", "event.scope.lowerAscii()", "event.limit > 1.5", "event.scope in [task.comm]",
		"event.along && 1 / task.pid == 1", "event.along ? event.scope.trim() : ''",
	} {
		x, errs := c.compile(source)
		if len(errs) > 0 {
			t.Fatalf("%s: %v", source, errs)
		}
		if x.direct.truth != nil || x.direct.text != nil {
			t.Errorf("%s has a direct form", source)
		}
	}
}

// Nearly all expressions of the shipped rules have a direct form.
func TestShippedRulesAreDirect(t *testing.T) {
	set, err := Load(Shipped())
	if err != nil {
		t.Fatal(err)
	}
	var with int
	var without []string
	count := func(rule, what string, x *expr) {
		switch {
		case x == nil:
		case x.direct.truth != nil || x.direct.text != nil:
			with++
		default:
			without = append(without, rule+" "+what)
		}
	}
	for _, r := range set.rules {
		count(r.Name, "when", r.when)
		count(r.Name, "clearWhen", r.clearWhen)
		for _, s := range r.severityWhen {
			count(r.Name, "severityWhen", s.when)
		}
		for _, p := range r.message.parts {
			count(r.Name, "message", p.x)
		}
	}
	t.Logf("%d with a direct form, without: %s", with, strings.Join(without, ", "))
	if with < 12*len(without) {
		t.Errorf("%d of %d have no direct form", len(without), with+len(without))
	}
}
