package detector_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/logpattern"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
)

// naiveRule is a simple implementation of a log rule: it runs its patterns over
// the last lines, one after the other, and shares nothing with other rules.
type naiveRule struct {
	name             string
	pattern, clear   string // "" for none
	lines            int
	log              string // "" for all
	by               string // group of the pattern that makes the problem's group
	when, clearWhen  [2]string
	counts, episodes map[string]int
	live             map[string]bool
	compiled         map[string]*regexp.Regexp
}

func naiveRules() []*naiveRule {
	return []*naiveRule{
		{name: "pair", pattern: `server (?P<s>\w+) silent`, clear: `server (?P<s>\w+) OK`, lines: 1, by: "s"},
		{name: "state", pattern: `disk (?P<d>\w+) (?P<s>\w+)`, lines: 1, by: "d", when: [2]string{"s", "bad"}, clearWhen: [2]string{"s", "good"}},
		{name: "trace", pattern: `BUG.*\n(?:.*\n)?.*at (?P<f>\w+)`, clear: `fixed (?P<f>\w+)`, lines: 3, by: "f"},
		{name: "start", pattern: `^(?P<w>\w+) (?:silent|bad)$`, clear: `^(?P<w>\w+)$`, lines: 1, by: "w"},
		{name: "kernel", pattern: `(?i)SERVER (?P<s>a|b)\b|disk (?P<d>\w+)`, clear: `OK(?P<s>)`, lines: 1, log: "kmsg", by: "s"},
	}
}

// yaml returns the rule for the engine.
func (r *naiveRule) yaml() string {
	s := fmt.Sprintf("- {name: %s, events: [log], reason: R, message: m, condition: Sick, groupBy: [match.%s], pattern: '%s', lines: %d", r.name, r.by, r.pattern, r.lines)
	if r.clear != "" {
		s += ", clearPattern: '" + r.clear + "'"
	}
	if r.log != "" {
		s += ", logs: [" + r.log + "]"
	}
	if r.when[0] != "" {
		s += fmt.Sprintf(", when: 'match.%s == %q', clearWhen: 'match.%s == %q'", r.when[0], r.when[1], r.clearWhen[0], r.clearWhen[1])
	}
	return s + "}\n"
}

// find returns the captures of a match that ends in the last line.
func (r *naiveRule) find(expr string, lines []string) map[string]string {
	if expr == "" {
		return nil
	}
	text := strings.Join(lines[max(0, len(lines)-r.lines):], "\n")
	re := r.compiled[expr]
	if re == nil {
		if re = regexp.MustCompile(expr); r.lines > 1 {
			re = regexp.MustCompile(`(?m)(?:` + expr + `)[^\n]*\z`)
		}
		r.compiled[expr] = re
	}
	m := re.FindStringSubmatch(text)
	if m == nil {
		return nil
	}
	out := map[string]string{}
	for i, name := range re.SubexpNames() {
		out[name] = m[i]
	}
	return out
}

func (r *naiveRule) observe(d *event.LogData) {
	if r.log != "" && r.log != d.Log {
		return
	}
	lines := strings.Split(d.Text, "\n")
	hit, clear := r.find(r.pattern, lines), r.find(r.clear, lines)
	matched := hit != nil && (r.when[0] == "" || hit[r.when[0]] == r.when[1])
	switch {
	case matched:
		r.counts[hit[r.by]]++
		if !r.live[hit[r.by]] {
			r.live[hit[r.by]] = true
			r.counts[hit[r.by]] = 1
			r.episodes[hit[r.by]]++
		}
	case clear != nil:
		delete(r.live, clear[r.by])
	case hit != nil && r.clearWhen[0] != "" && hit[r.clearWhen[0]] == r.clearWhen[1]:
		delete(r.live, hit[r.by])
	}
}

// TestLogsLikeNaive checks that the engine, with one matcher for all rules, gives the
// same result as each rule alone.
func TestLogsLikeNaive(t *testing.T) {
	words := []string{"server", "disk", "a", "b", "silent", "OK", "bad", "good", "BUG", "at", "fixed", "x"}
	for seed := range uint64(10) {
		naive := naiveRules()
		var text strings.Builder
		for _, r := range naive {
			text.WriteString(r.yaml())
			r.counts, r.episodes, r.live = map[string]int{}, map[string]int{}, map[string]bool{}
			r.compiled = map[string]*regexp.Regexp{}
		}
		e := detector.NewEngine(ruleSet(t, text.String()))
		r := rand.New(rand.NewPCG(seed, 3))
		episodes := map[string]int{}
		for i := range 1000 {
			lines := make([]string, 1+r.IntN(4)*r.IntN(2))
			for j := range lines {
				line := make([]string, 1+r.IntN(4))
				for k := range line {
					line[k] = words[r.IntN(len(words))]
				}
				lines[j] = strings.Join(line, " ")
			}
			d := time.Duration(i) * time.Second // increasing, so that evictions of resolved problems don't matter
			ev := logged(d, strings.Join(lines, "\n"))
			ev.Log.Log = []string{"kmsg", "journald"}[r.IntN(2)]
			for _, n := range naive {
				n.observe(ev.Log)
			}
			for _, tr := range e.Observe(ev, at(d)) {
				if tr.Problem != nil && tr.Problem.State == problem.Firing {
					episodes[tr.Problem.Rule+" "+tr.Problem.Group]++
				}
			}
		}
		wantEpisodes, wantLive := map[string]int{}, map[string]int{}
		for _, n := range naive {
			for g, c := range n.episodes {
				wantEpisodes[n.name+" "+g] = c
			}
			for _, g := range slices.Sorted(maps.Keys(n.live)) {
				wantLive[n.name+" "+g] = n.counts[g]
			}
		}
		live := map[string]int{}
		for _, p := range e.Problems() {
			if p.State == problem.Firing {
				live[p.Rule+" "+p.Group] = int(p.Count)
			}
		}
		if diff := cmp.Diff(wantEpisodes, episodes); diff != "" {
			t.Errorf("seed %d: episodes (-naive +engine):\n%s", seed, diff)
		}
		if diff := cmp.Diff(wantLive, live); diff != "" {
			t.Errorf("seed %d: firing at the end (-naive +engine):\n%s", seed, diff)
		}
		if len(episodes) < 8 {
			t.Errorf("seed %d: only %d groups came", seed, len(episodes))
		}
	}
}

// TestEngineMatchesWhatTheSourceDid checks that the engine finds exactly the patterns that
// a source's matcher found, because the event contains the longest text that the matcher
// found at the line.
func TestEngineMatchesWhatTheSourceDid(t *testing.T) {
	set := ruleSet(t, `
- {name: word, events: [log], pattern: '\bbad\b', reason: R, message: m}
- {name: whole, events: [log], pattern: '^(?P<w>\w+) OK$', clearPattern: '^OK$', reason: R, message: m}
- {name: two, events: [log], pattern: 'BUG.*\n.*at', logs: [kmsg], reason: R, message: m}
- {name: some, events: [log], pattern: '^server(?:.*\n)*?.*end', lines: 7, reason: R, message: m}
- {name: empty, events: [log], pattern: 'x\n\n(?P<last>.)', reason: R, message: m}
`)
	words := []string{"server", "bad", "OK", "BUG", "at", "end", "x", "\xff", "é"}
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 4))
		e := detector.NewEngine(set)
		source := set.PatternSet().NewMatcher("kmsg")
		var hits logpattern.Hits
		found := map[string]uint64{}
		for i := range 3000 {
			line := make([]string, r.IntN(4))
			for k := range line {
				line[k] = words[r.IntN(len(words))]
			}
			if !source.Match([]byte(strings.Join(line, " ")), &hits) {
				continue
			}
			var longest []byte
			for _, h := range hits.Hits {
				found[set.PatternSet().Pattern(h.Pattern).Name]++
				if len(h.Context) >= len(longest) {
					longest = h.Context
				}
			}
			d := time.Duration(i) * time.Second
			e.Observe(logged(d, event.LogText(string(longest))), at(d))
		}
		s := e.Stats()
		if diff := cmp.Diff(found, s.Matches); diff != "" || s.Unmatched != 0 {
			t.Errorf("seed %d: %d unmatched, matches (-source +engine):\n%s", seed, s.Unmatched, diff)
		}
		if len(found) != 6 {
			t.Errorf("seed %d: only %v", seed, found)
		}
	}
}
