package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

// testEvent is a line of go test -json (go doc test2json).
type testEvent struct {
	Time       time.Time
	Action     string
	Package    string
	ImportPath string // for build-output
	Test       string
	Elapsed    float64
	Output     string
}

// key identifies a test, or a package if test is empty.
type key struct{ pkg, test string }

type timing struct {
	key
	began, ended time.Time
}

func (t timing) wall() time.Duration { return t.ended.Sub(t.began) }

type failure struct {
	key
	said []string
}

// report converts the events of go test to text for people. Several runs of go test may write to it
// at once.
type report struct {
	mu      sync.Mutex
	out     io.Writer
	output  map[key][]string // of running tests
	began   map[key]time.Time
	tests   []timing
	skips   map[string]int // number of tests by reason
	failing []failure
	earlier []failure           // failures of tests that were run again
	samples map[string][]sample // by package

	passed, failed, skipped int

	ended     map[string]bool // packages whose tests all completed, some with failures
	broken    bool            // a package failed in another way: it did not build, or a test panicked
	runFailed bool            // a run of go test failed
	started   time.Time
}

func newReport(out io.Writer) *report {
	return &report{
		out: out, started: time.Now(),
		output: map[key][]string{}, began: map[key]time.Time{}, skips: map[string]int{}, samples: map[string][]sample{},
		ended: map[string]bool{},
	}
}

func (r *report) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e testEvent
			if json.Unmarshal(line, &e) != nil || e.Action == "" {
				e = testEvent{Action: "build-output", Output: string(line)}
			}
			r.handle(e)
		}
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func (r *report) handle(e testEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := key{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "run", "cont": // a parallel test starts when it is its turn
		r.began[k] = e.Time
	case "output":
		if e.Test != "" {
			r.output[k] = append(r.output[k], e.Output)
		} else if e.Output != "PASS\n" && !strings.HasPrefix(e.Output, "coverage:") {
			fmt.Fprint(r.out, e.Output)
			if e.Output == "FAIL\n" { // the last line of a test binary whose tests all completed
				r.ended[e.Package] = true
			}
		}
	case "pass", "skip", "fail":
		r.end(k, e)
	}
}

func (r *report) end(k key, e testEvent) {
	output := r.output[k]
	delete(r.output, k)
	if k.test == "" {
		r.endPackage(k, e.Action == "fail")
		return
	}
	if !strings.Contains(k.test, "/") {
		r.tests = append(r.tests, timing{k, r.began[k], e.Time})
	}
	switch e.Action {
	case "pass":
		r.passed++
	case "skip":
		r.skipped++
		r.skips[skipReason(output)]++
	case "fail":
		r.fail(k, output)
		fmt.Fprint(r.out, strings.Join(output, ""))
	}
}

// endPackage prints the output of tests that had not ended when their process did, as in a panic. A
// package that failed without a failed test, for example because it does not build, counts as a
// failure.
func (r *report) endPackage(pkg key, failed bool) {
	for _, k := range slices.SortedFunc(maps.Keys(r.output), func(a, b key) int { return cmp.Compare(a.test, b.test) }) {
		if k.pkg == pkg.pkg {
			fmt.Fprint(r.out, strings.Join(r.output[k], ""))
			r.fail(k, r.output[k])
			delete(r.output, k)
		}
	}
	r.broken = r.broken || failed && !r.ended[pkg.pkg]
	delete(r.ended, pkg.pkg)
	if failed && !slices.ContainsFunc(r.failing, func(f failure) bool { return f.pkg == pkg.pkg }) {
		r.fail(pkg, nil)
	}
}

func (r *report) fail(k key, output []string) {
	r.failed++
	r.failing = append(r.failing, failure{k, firstSaid(output)})
}

// again returns the failed tests by package, to run them again. It returns nil if there are more
// than most, or if something else failed, which is not by chance.
func (r *report) again(most int) map[string][]string {
	n, tests := 0, map[string][]string{}
	for _, f := range r.failing {
		if test, _, _ := strings.Cut(f.test, "/"); !slices.Contains(tests[f.pkg], test) {
			tests[f.pkg] = append(tests[f.pkg], test)
			n++
		}
	}
	if n > most || r.broken {
		return nil
	}
	return tests
}

// repeat calls f, which runs all failed tests again. Their new results replace the first ones.
func (r *report) repeat(f func() error) error {
	passed, skipped := r.passed, r.skipped
	r.earlier, r.failing, r.failed, r.runFailed = r.failing, nil, 0, false
	err := f()
	r.passed, r.skipped = passed+max(0, len(r.earlier)-r.failed), skipped
	return err
}

// firstSaid returns the first messages of a failed test, cut to one line each. Its other output,
// such as logs of programs, may be long and come last.
func firstSaid(output []string) (said []string) {
	const most, width = 3, 300
	for _, line := range output {
		line = strings.TrimSpace(line)
		place, _, ok := strings.Cut(line, ": ")
		if ok && (strings.HasSuffix(strings.TrimRight(place, "0123456789"), ".go:") || place == "panic") && len(said) < most {
			said = append(said, line[:min(len(line), width)])
		}
	}
	return said
}

// skipReason returns the text passed to Skip, which go test prints as "    file.go:12: text".
func skipReason(output []string) string {
	for _, line := range slices.Backward(output) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "---") || strings.HasPrefix(line, "===") {
			continue
		}
		if place, text, ok := strings.Cut(line, ": "); ok && strings.Contains(place, ".go:") {
			return text
		}
	}
	return "without a reason"
}

func (r *report) add(samples map[string][]sample) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for pkg, more := range samples {
		r.samples[pkg] = append(r.samples[pkg], more...)
	}
}

func (r *report) failedRun() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.runFailed = true
}

func (r *report) exitCode() int {
	if r.runFailed || r.failed > 0 {
		return 1
	}
	return 0
}

func (r *report) summarize(slow int) {
	if slow > 0 {
		r.slowest(slow)
	}
	if len(r.skips) > 0 {
		fmt.Fprintln(r.out, "\nSkipped:")
		reasons := slices.SortedFunc(maps.Keys(r.skips), func(a, b string) int {
			return cmp.Or(cmp.Compare(r.skips[b], r.skips[a]), cmp.Compare(a, b))
		})
		for _, reason := range reasons {
			fmt.Fprintf(r.out, "%5d  %s\n", r.skips[reason], reason)
		}
	}
	r.list("Failed, and were run again", r.earlier)
	r.list("Failed", r.failing)
	fmt.Fprintf(r.out, "\n%d tests in %s\n%d passed, %d failed, %d skipped\n",
		r.passed+r.failed+r.skipped, time.Since(r.started).Round(time.Second), r.passed, r.failed, r.skipped)
}

func (r *report) list(title string, failures []failure) {
	if len(failures) == 0 {
		return
	}
	fmt.Fprintf(r.out, "\n%s:\n", title)
	for _, f := range failures {
		fmt.Fprintln(r.out, strings.TrimRight("  "+f.pkg+" "+f.test, " "))
		for _, line := range f.said {
			fmt.Fprintf(r.out, "    %s\n", line)
		}
	}
}

// slowest prints the slowest tests. The CPU time by program is that of the whole package during the
// test.
func (r *report) slowest(n int) {
	slices.SortFunc(r.tests, func(a, b timing) int { return cmp.Compare(b.wall(), a.wall()) })
	fmt.Fprintln(r.out, "\nSlowest tests. What is not CPU time was waiting: for timers, the kernel, or a turn.")
	w := tabwriter.NewWriter(r.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SECONDS\tCPU\tTEST\tCPU BY PROGRAM")
	for _, t := range r.tests[:min(n, len(r.tests))] {
		total, programs := during(r.samples[t.pkg], t.began, t.ended)
		fmt.Fprintf(w, "%.1f\t%.1f\t%s %s\t%s\n", t.wall().Seconds(), total.Seconds(), shortName(t.pkg), t.test, programs)
	}
	_ = w.Flush()
}

func shortName(pkg string) string {
	if parts := strings.SplitN(pkg, "/", 4); len(parts) == 4 {
		return parts[3]
	}
	return pkg
}
