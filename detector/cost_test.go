package detector

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"cel.dev/cel-go/cel"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// writer generates random expressions over the longest texts that an event can hold.
type writer struct{ *rand.Rand }

func (w writer) of(forms ...func() string) string { return forms[w.IntN(len(forms))]() }

func (w writer) text(depth int) string {
	field := func() string { return "log.text" }
	short := func() string { return [...]string{"''", "'a'", "','", "'aaaa'", "'é'", "log.name"}[w.IntN(6)] }
	if depth == 0 {
		return w.of(field, short)
	}
	d := depth - 1
	return w.of(field, short,
		func() string { return w.text(d) + " + " + w.text(d) },
		func() string { return fmt.Sprintf("(%s).replace(%s, %s)", w.text(d), w.text(d), w.text(d)) },
		func() string { return fmt.Sprintf("(%s).replace(%s, %s, 3)", w.text(d), w.text(d), w.text(d)) },
		func() string {
			return fmt.Sprintf("(%s).%s()", w.text(d), [...]string{"upperAscii", "lowerAscii", "trim", "reverse"}[w.IntN(4)])
		},
		func() string { return fmt.Sprintf("(%s).substring(0)", w.text(d)) },
		func() string { return fmt.Sprintf("strings.quote(%s)", w.text(d)) },
		func() string { return fmt.Sprintf("(%s).join(%s)", w.list(d), w.text(d)) },
		func() string { return fmt.Sprintf("(%s ? %s : %s)", w.truth(d), w.text(d), w.text(d)) },
		func() string { return fmt.Sprintf("regex.replace(%s, 'a*', %s)", w.text(d), w.text(d)) },
		func() string { return fmt.Sprintf("'%%s, %%s'.format([%s, %s])", w.text(d), w.text(d)) },
		func() string { return fmt.Sprintf("pod.labels[%s]", w.text(d)) },
		func() string { return fmt.Sprintf("pod.labels[?%s].orValue(%s)", w.text(d), w.text(d)) },
		func() string { return "pod.labels.a" },
	)
}

func (w writer) list(depth int) string {
	if depth == 0 {
		return "[log.text, 'a']"
	}
	d := depth - 1
	return w.of(
		func() string { return fmt.Sprintf("(%s).split(%s)", w.text(d), w.text(d)) },
		func() string { return fmt.Sprintf("(%s).split(%s, 4)", w.text(d), w.text(d)) },
		func() string { return fmt.Sprintf("[%s, %s]", w.text(d), w.text(d)) },
		func() string {
			return fmt.Sprintf("%s.map(x, %s)", w.list(d), w.of(func() string { return "x" }, func() string { return w.text(d) }))
		},
		func() string { return fmt.Sprintf("%s.filter(x, %s)", w.list(d), w.truth(d)) },
		func() string { return fmt.Sprintf("regex.extractAll(%s, 'a')", w.text(d)) },
		func() string {
			return fmt.Sprintf("pod.labels.map(k, %s)", w.of(func() string { return "k" }, func() string { return "pod.labels[k]" }, func() string { return w.text(d) }))
		},
		func() string { return fmt.Sprintf("pod.labels.filter(k, %s)", w.truth(d)) },
	)
}

func (w writer) truth(depth int) string {
	if depth == 0 {
		return w.of(func() string { return "true" }, func() string { return "log.text.contains('b')" })
	}
	d := depth - 1
	return w.of(
		func() string { return fmt.Sprintf("(%s).contains(%s)", w.text(d), w.text(d)) },
		func() string { return fmt.Sprintf("(%s).startsWith(%s)", w.text(d), w.text(d)) },
		func() string { return fmt.Sprintf("(%s).matches('(a|b)*c?')", w.text(d)) },
		func() string { return fmt.Sprintf("(%s).matches('^(?:a|b,){2,3}$')", w.text(d)) },
		func() string { return fmt.Sprintf("isIP(%s)", w.text(d)) },
		func() string { return fmt.Sprintf("isCIDR(%s[0])", w.list(d)) },
		func() string { return fmt.Sprintf("(%s) == (%s)", w.text(d), w.text(d)) },
		func() string { return fmt.Sprintf("(%s).indexOf(%s) >= 0", w.text(d), w.text(d)) },
		func() string { return fmt.Sprintf("(%s).size() > 3", w.text(d)) },
		func() string { return fmt.Sprintf("%s.size() > 3", w.list(d)) },
		func() string { return fmt.Sprintf("%s.exists(x, x.contains(%s))", w.list(d), w.text(d)) },
		func() string { return fmt.Sprintf("(%s) in %s", w.text(d), w.list(d)) },
		func() string { return fmt.Sprintf("(%s) in pod.labels", w.text(d)) },
		func() string {
			return fmt.Sprintf("pod.labels.%s(k, %s)", [...]string{"exists", "all", "exists_one"}[w.IntN(3)], w.of(
				func() string { return fmt.Sprintf("k.contains(%s)", w.text(d)) },
				func() string { return fmt.Sprintf("pod.labels[k].matches('(a|b)*c?') || %s", w.truth(d)) },
				func() string { return fmt.Sprintf("pod.labels[?k].orValue(%s).endsWith(k)", w.text(d)) },
			))
		},
		func() string { return "pod.labels == pod.labels && pod.labels.size() > 3 && has(pod.labels.a)" },
		func() string { return fmt.Sprintf("sets.contains(%s, %s)", w.list(d), w.list(d)) },
		func() string { return fmt.Sprintf("(%s && %s)", w.truth(d), w.truth(d)) },
	)
}

// Such expressions used to be accepted; each line of 4 KiB then took 25 ms until it was cut off.
func TestExpensiveExpressionsAreRefused(t *testing.T) {
	c, err := newCompiler()
	if err != nil {
		t.Fatal(err)
	}
	for source, want := range map[string]string{
		"log.text.replace('', log.text) == 'a'":                         "too expensive: worst case 16",
		"regex.replace(log.text, 'a*', log.text) == 'a'":                "too expensive: worst case 33",
		"[log.text].map(x, x + x).join(log.text) == 'a'":                "too expensive: the length of its texts is unbounded",
		"log.text.split(',').join(log.text) == 'a'":                     "too expensive: worst case 16",
		"event.evidence.exists(x, isIP('%s'.format([event.evidence])))": "too expensive: the length of its texts is unbounded",
		"isIP('%s'.format([event.evidence]))":                           "too expensive: the length of its texts is unbounded",
		"[log.text + log.text].exists(x, isIP(x))":                      "",
		"[log.text].exists(x, isIP(x.split('!')[0]))":                   "too expensive: the length of its texts is unbounded", // of a list's element
		"isIP(log.text) && isIP(log.text.split(' ')[2])":                "",
		"log.text.contains(log.text)":                                   "",
		// Fourteen characters, 600 instructions: 12 ms for 4096 times "a".
		"log.text.matches('(?:a?){300}b')":                                                         "",
		strings.Repeat("log.text.matches('(?:a?){300}b') || ", 9) + "false":                        "too expensive: worst case 2",
		"regex.extractAll(log.text, '(?:a?){400}b').size() > 1 || log.text.matches('[a-z]{500}X')": "",
		// Each "a" makes it read to the end: 90 ms.
		"regex.extractAll(log.text, 'a.*b|a').size() > 1":                               "too expensive: worst case 13",
		"regex.replace(log.text, '(?:[a-z]+ )*', 'x') == 'x'":                           "too expensive: worst case 10",
		`regex.replace(log.text, '[0-9]+(?:[.][0-9]+)?( ms)?|0x[0-9a-f]+', 'x') == 'x'`: "",
		"log.text.replace('a', '').split(',').size() > 3":                               "",
	} {
		_, errs := c.compile(source)
		if got := fmt.Sprint(errs); want == "" && len(errs) > 0 || !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %q", source, got, want)
		}
	}
}

// Counted repetitions once made the library panic, which ended the agent.
func TestRegexWithCounts(t *testing.T) {
	c, err := newCompiler()
	if err != nil {
		t.Fatal(err)
	}
	act := newActivation()
	act.ev = &event.Event{Kind: event.Log, Log: &event.LogData{Text: "app-123"}}
	for _, source := range []string{
		`log.text.matches("^app-[0-9]{3}$")`, `log.text.matches("^app-(?:1|2|3){1,3}$")`,
		`regex.replace(log.text, "[0-9]{2,}", "x") == "app-x"`, `regex.extractAll(log.text, "[0-9]{1}").size() == 3`,
	} {
		x, errs := c.compile(source)
		if len(errs) > 0 {
			t.Errorf("%s: %v", source, errs)
			continue
		}
		if ok, err := x.test(act); !ok || err != nil {
			t.Errorf("%s: %v, %v", source, ok, err)
		}
	}
}

// Patterns from an event used to be accepted, and failed or were cut off on some lines.
func TestPatternsAreFixed(t *testing.T) {
	c, err := newCompiler()
	if err != nil {
		t.Fatal(err)
	}
	for source, want := range map[string]string{
		`log.text.matches(log.text)`:                                           "20: the pattern of matches must be one text in quotes",
		`matches(log.text, log.name)`:                                          "21: the pattern of matches must",
		`log.text.matches("^a" + log.name)`:                                    "22: the pattern of matches must",
		`['a', 'b'].exists(x, log.text.matches(x))`:                            "38: the pattern of matches must",
		`regex.extract(log.text, log.name).hasValue()`:                         "27: the pattern of regex.extract must",
		`regex.extractAll(log.text, log.name).size() > 1`:                      "30: the pattern of regex.extractAll must",
		`regex.replace(log.text, log.name, "x") == "x"`:                        "27: the pattern of regex.replace must",
		`matches(log.text, "(")`:                                               "18: the pattern of matches is invalid: error parsing regexp: missing closing )",
		`regex.replace(log.text, "a)", "x") == "x"`:                            "24: the pattern of regex.replace is invalid",
		`"a-1".matches("^a") && regex.replace("a", "a", log.text) == log.name`: "",
	} {
		_, errs := c.compile(source)
		got := ""
		if len(errs) > 0 {
			got = fmt.Sprintf("%d: %s", errs[0].offset, errs[0].msg)
		}
		if want == "" && got != "" || !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", source, got, want)
		}
	}
}

// mostLabels returns n labels with names of the given length and long values.
func mostLabels(n, long int) map[string]string {
	labels := make(map[string]string, n)
	for i := range n {
		name := fmt.Sprintf("%02d", i)
		labels[name+strings.Repeat("a", long-len(name))] = strings.Repeat("a", min(event.MaxLabelValue, 4096/n-long))
	}
	return labels
}

// Accepted expressions are never cut off: on the largest inputs they cost no more than estimated.
func TestAcceptedExpressionsAreNotCutOff(t *testing.T) {
	c, err := newCompiler()
	if err != nil {
		t.Fatal(err)
	}
	act := newActivation()
	labels := []map[string]string{mostLabels(event.MaxPodLabels, 60), mostLabels(10, event.MaxLabelName)}
	accepted, refused := 0, 0
	for seed := range testenv.Cases(t, 4_000) {
		w := writer{rand.New(rand.NewPCG(1, uint64(seed)))} //nolint:gosec // repeatable
		source := w.truth(1 + w.IntN(3))
		checked, issues := c.env.Compile(source)
		if issues.Err() != nil {
			continue // too deep, too long
		}
		if _, errs := c.compile(source); len(errs) > 0 {
			refused++
			continue
		}
		accepted++
		if checked, issues = c.labelsByName(checked); issues.Err() != nil {
			t.Fatalf("%s: %v", source, issues.Err())
		}
		estimate, err := c.env.EstimateCost(checked, sizes{})
		if err != nil {
			t.Fatal(err)
		}
		program, err := c.env.Program(checked, cel.EvalOptions(cel.OptTrackCost), cel.CostLimit(cutCost), addressTracking())
		if err != nil {
			t.Fatal(err)
		}
		for i, text := range []string{strings.Repeat("a", event.MaxFieldText), strings.Repeat("a,", event.MaxFieldText/2), strings.Repeat("é", event.MaxFieldText/2)} {
			act.ev = &event.Event{Kind: event.Log, Log: &event.LogData{Log: "kmsg", Text: text}, PodLabels: labels[i%len(labels)]}
			_, details, err := program.Eval(act)
			if err != nil && strings.Contains(err.Error(), "cost limit") {
				t.Errorf("%s: estimated %d: %v", source, estimate.Max, err)
			}
			// For small parts the library charges a few units more than it estimates.
			if cost := details.ActualCost(); cost != nil && *cost > 2*estimate.Max+100 {
				t.Errorf("%s: estimated %d, took %d", source, estimate.Max, *cost)
			}
		}
	}
	t.Logf("%d accepted, %d refused", accepted, refused)
	if accepted < 100 || refused == 0 {
		t.Error("too few to mean anything")
	}
}
