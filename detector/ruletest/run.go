package ruletest

import (
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
)

// Result is the outcome of one test.
type Result struct {
	File     string
	Line     int
	Name     string
	Failures []Failure // empty: passed
}

// Failure is one expectation that was not met.
type Failure struct {
	Line int           // in the test file
	At   time.Duration // of the expectation
	Text string        // may have several lines
}

// IsTestFile reports whether a file name is that of a test file: *_test.yaml or *_test.yml.
func IsTestFile(name string) bool {
	ext := path.Ext(name)
	return (ext == ".yaml" || ext == ".yml") && strings.HasSuffix(strings.TrimSuffix(name, ext), "_test")
}

// ReadFiles returns the test files of a directory.
func ReadFiles(fsys fs.FS) ([]File, error) {
	entries, err := fs.ReadDir(fsys, ".")
	if err != nil {
		return nil, fmt.Errorf("rule tests: %w", err)
	}
	var files []File
	for _, e := range entries {
		if !IsTestFile(e.Name()) {
			continue
		}
		data, err := fs.ReadFile(fsys, e.Name())
		if err != nil {
			return nil, fmt.Errorf("rule tests: %w", err)
		}
		files = append(files, File{Name: e.Name(), Data: data})
	}
	return files, nil
}

// Run runs all tests of the files and adds the results, with the gaps of those rules for which about
// returns true. The error is a [detector.Errors] with all mistakes in the test files.
func (r *Results) Run(rules *detector.RuleSet, about func(*detector.Rule) bool, files ...File) error {
	var tests []*test
	var mistakes detector.Errors
	for _, f := range files {
		file, ts := parse(f, rules)
		file.Errors.Sort()
		mistakes = append(mistakes, file.Errors...)
		tests = append(tests, ts...)
	}
	if len(mistakes) > 0 {
		return mistakes
	}
	all := make(map[string]coverage)
	for _, t := range tests {
		run := newRun(t, rules)
		r.Tests = append(r.Tests, Result{File: t.file.Name, Line: t.line, Name: t.name, Failures: run.run()})
		run.cover(all)
	}
	var gaps []Gap
	for _, rule := range rules.Rules() {
		if missing := all[rule.Name].missing(rule); len(missing) > 0 && about(rule) {
			gaps = append(gaps, Gap{rule.Name, rule.File, rule.Line, missing})
		}
	}
	slices.SortStableFunc(gaps, func(a, b Gap) int { return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line)) })
	r.Gaps = append(r.Gaps, gaps...)
	return nil
}

// moment returns the time at an offset. Offset 0 is a fixed, arbitrary time, an hour after boot.
func moment(offset time.Duration) event.Moment {
	start := event.Moment{Wall: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Boot: time.Hour}
	return start.Add(offset)
}

// run is the state of one running test.
type run struct {
	*test
	rules    *detector.RuleSet
	engine   *detector.Engine
	shown    map[string]coverage // by rule, as far as transitions show it
	kinds    map[event.Kind]bool // kinds of the events so far
	matched  map[string]bool     // names of the patterns that matched
	failures []Failure
	sequence time.Duration // makes kernel records distinct
}

func newRun(t *test, rules *detector.RuleSet) *run {
	return &run{test: t, rules: rules, engine: detector.NewEngine(rules), shown: make(map[string]coverage),
		kinds: make(map[event.Kind]bool), matched: make(map[string]bool)}
}

func (r *run) run() []Failure {
	r.sourcesUp(0)
	steps := r.steps
	for _, c := range r.checks {
		for len(steps) > 0 && steps[0].at <= c.at {
			r.step(steps[0])
			steps = steps[1:]
		}
		r.advance(c.at)
		r.failures = append(r.failures, r.compare(c)...)
	}
	r.noteMatches()
	return r.failures
}

// sourcesUp reports to the engine that all sources are up, unless the test does so itself. It leaves
// out the sources for which a rule named by the test is a fallback.
func (r *run) sourcesUp(at time.Duration) {
	if !r.sources {
		return
	}
	var stems, away []string
	for _, rule := range r.rules.Rules() {
		if slices.Contains(r.test.rules, rule.Name) {
			away = append(away, rule.FallbackFor...)
		}
	}
	for _, k := range event.Kinds() {
		if !slices.Contains(stems, k.Stem()) && !slices.Contains(away, k.Stem()) {
			stems = append(stems, k.Stem())
		}
	}
	for _, s := range stems {
		ev := &event.Event{Kind: event.Source, Time: moment(at).Wall, SourceUp: &event.SourceData{Stem: s, Up: true}}
		r.note(r.engine.Observe(ev, moment(at)))
	}
}

// advance ticks at every deadline up to the offset, and at the offset.
func (r *run) advance(to time.Duration) {
	end := moment(to)
	for {
		d, ok := r.engine.NextDeadline()
		if !ok || d.Boot > end.Boot {
			break
		}
		r.note(r.engine.Tick(d))
		if next, ok := r.engine.NextDeadline(); ok && next.Boot <= d.Boot {
			break // avoid an endless loop; the check at the offset will fail
		}
	}
	r.note(r.engine.Tick(end))
}

func (r *run) step(s step) {
	r.advance(s.at)
	now := moment(s.at)
	if s.restart {
		r.restart(s.at)
		return
	}
	ev := s.event.Clone()
	r.sequence++
	if !s.set.time {
		ev.Time = now.Wall
	}
	if !s.set.boot {
		// Make the identities of all records different.
		ev.BootTime = event.Duration(now.Boot + r.sequence)
	}
	r.kinds[ev.Kind] = true
	r.note(r.engine.Observe(ev, now))
}

// restart saves the engine's state and continues with a new engine.
func (r *run) restart(at time.Duration) {
	data, err := r.engine.Snapshot()
	if err == nil {
		r.noteMatches()
		r.engine = detector.NewEngine(r.rules)
		err = r.engine.Restore(data, moment(at))
	}
	if err != nil {
		r.failures = append(r.failures, Failure{Line: r.line, At: at, Text: "restart: " + err.Error()})
		return
	}
	r.sourcesUp(at)
}

func (r *run) note(ts []problem.Transition) {
	for _, t := range ts {
		if t.Problem == nil {
			continue
		}
		c := r.shown[t.Problem.Rule]
		switch t.Problem.State {
		case problem.Firing:
			c.fired++
			c.refires = c.refires || c.clears
		case problem.Resolved:
			c.clears = true
		}
		r.shown[t.Problem.Rule] = c
	}
}

// noteMatches records which patterns have matched in the engine.
func (r *run) noteMatches() {
	for name := range r.engine.Stats().Matches {
		r.matched[name] = true
	}
}

func (r *run) cover(all map[string]coverage) {
	for _, rule := range r.rules.Rules() {
		c, own := all[rule.Name], r.shown[rule.Name]
		c.fired += own.fired
		c.clears = c.clears || own.clears
		c.refires = c.refires || own.refires
		came := slices.ContainsFunc(rule.Events, func(k event.Kind) bool { return r.kinds[k] })
		c.holds = c.holds || came && own.fired == 0
		c.matches = c.matches || r.matched[rule.PatternName()]
		c.clearMatches = c.clearMatches || r.matched[rule.ClearPatternName()]
		all[rule.Name] = c
	}
}

// coverage is the behavior of a rule that the tests have exercised.
type coverage struct {
	fired   int  // how often it fired
	holds   bool // in some test, events of its kinds came and it did not fire
	clears  bool // it resolved
	refires bool // it fired again after it resolved, in one test
	// Log rules: a line matched the pattern or the clearPattern. holds then means that
	// in some test a log line came and the rule did not fire.
	matches, clearMatches bool
}

// missing returns the behavior that the tests have not exercised. It omits what the rule can't do:
// a rule without a filter fires on every event of its kinds, and a latched problem never clears.
func (c coverage) missing(r *detector.Rule) []string {
	var out []string
	for _, m := range []struct {
		shown bool
		what  string
	}{
		{c.fired > 0, "fires"},
		{c.holds || r.When == "" && r.Threshold.Count == 0 && r.For == 0 && r.Pattern == "", "does not fire"},
		{c.clears || r.Latched, "clears"},
		{c.refires || r.Latched, "flaps"},
		{c.matches || r.Pattern == "", "pattern matches"},
		{c.clearMatches || r.ClearPattern == "", "clearPattern matches"},
	} {
		if !m.shown {
			out = append(out, m.what)
		}
	}
	return out
}

// Gap is a rule that the tests don't cover completely.
type Gap struct {
	Rule    string
	File    string // of the rule
	Line    int
	Missing []string // fires, does not fire, clears, flaps, pattern matches, clearPattern matches
}
