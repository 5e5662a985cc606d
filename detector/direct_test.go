package detector

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"cel.dev/cel-go/cel"
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
	return p.one("event.limit / 1000", "task.pid", "event.limit", "event.anonRSS", "event.oomScoreAdj", "-1", "0", "1", "1000000000000")
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
		func() string { return "string(" + p.number() + ")" },
		func() string { return "event.holder.orValue(" + p.word() + ")" },
		func() string { return "humanDuration(" + p.duration() + ")" },
	)
}

// interpreted returns an expression's program for CEL's interpreter, whether or not it has a direct
// form.
func interpreted(t *testing.T, c *compiler, source string) cel.Program {
	t.Helper()
	checked, issues := c.env.Compile(source)
	if issues.Err() != nil {
		t.Fatalf("%s: %v", source, issues.Err())
	}
	program, err := c.env.Program(checked, cel.EvalOptions(cel.OptOptimize))
	if err != nil {
		t.Fatalf("%s: %v", source, err)
	}
	return program
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
		a, program := newActivation(), interpreted(t, c, source)
		for _, a.ev = range events {
			want, _, err := program.Eval(a)
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

// All expressions of the shipped rules have a direct form: one without it costs every agent the
// memory of CEL's interpreter and cost estimates.
func TestShippedRulesAreDirect(t *testing.T) {
	set, err := Load(Shipped())
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	check := func(rule, what string, x *expr) {
		if x == nil {
			return
		}
		count++
		if x.program != nil {
			t.Errorf("%s: %s has no direct form", rule, what)
		}
	}
	for _, r := range set.rules {
		check(r.Name, "when", r.when)
		check(r.Name, "clearWhen", r.clearWhen)
		for _, s := range r.severityWhen {
			check(r.Name, "severityWhen", s.when)
		}
		for _, p := range r.message.parts {
			check(r.Name, "message", p.x)
		}
	}
	t.Logf("%d expressions", count)
	if count < 500 {
		t.Error("too few expressions: were rules loaded?")
	}
}
