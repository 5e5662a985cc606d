package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/vmtest/kubetest"
)

const module = "github.com/kernosis/kernosis/"

// Output of go test -json for four packages: one passes and skips, one fails, one panics and one
// does not build.
const events = `{"Time":"2026-01-02T03:04:05Z","Action":"start","Package":"m/a"}
{"Time":"2026-01-02T03:04:05Z","Action":"run","Package":"m/a","Test":"TestPasses"}
{"Time":"2026-01-02T03:04:05Z","Action":"output","Package":"m/a","Test":"TestPasses","Output":"=== RUN   TestPasses\n"}
{"Time":"2026-01-02T03:04:07Z","Action":"pass","Package":"m/a","Test":"TestPasses"}
{"Time":"2026-01-02T03:04:07Z","Action":"run","Package":"m/a","Test":"TestParallel"}
{"Time":"2026-01-02T03:04:07Z","Action":"pause","Package":"m/a","Test":"TestParallel"}
{"Time":"2026-01-02T03:04:08Z","Action":"run","Package":"m/a","Test":"TestSkips"}
{"Time":"2026-01-02T03:04:08Z","Action":"output","Package":"m/a","Test":"TestSkips","Output":"    a_test.go:9: needs root: it kills\n"}
{"Time":"2026-01-02T03:04:08Z","Action":"output","Package":"m/a","Test":"TestSkips","Output":"--- SKIP: TestSkips (0.00s)\n"}
{"Time":"2026-01-02T03:04:08Z","Action":"skip","Package":"m/a","Test":"TestSkips"}
{"Time":"2026-01-02T03:04:09Z","Action":"cont","Package":"m/a","Test":"TestParallel"}
{"Time":"2026-01-02T03:04:10Z","Action":"pass","Package":"m/a","Test":"TestParallel"}
{"Time":"2026-01-02T03:04:10Z","Action":"output","Package":"m/a","Output":"PASS\n"}
{"Time":"2026-01-02T03:04:10Z","Action":"output","Package":"m/a","Output":"ok  \tm/a\t5.000s\n"}
{"Time":"2026-01-02T03:04:10Z","Action":"pass","Package":"m/a"}
{"Time":"2026-01-02T03:04:10Z","Action":"run","Package":"m/b","Test":"TestFails"}
{"Time":"2026-01-02T03:04:10Z","Action":"output","Package":"m/b","Test":"TestFails","Output":"    b_test.go:7: 1 is not 2\n"}
{"Time":"2026-01-02T03:04:10Z","Action":"output","Package":"m/b","Test":"TestFails","Output":"        time=2026-01-02 msg=line\n"}
{"Time":"2026-01-02T03:04:10Z","Action":"fail","Package":"m/b","Test":"TestFails"}
{"Time":"2026-01-02T03:04:10Z","Action":"fail","Package":"m/b"}
{"Time":"2026-01-02T03:04:10Z","Action":"run","Package":"m/c","Test":"TestPanics"}
{"Time":"2026-01-02T03:04:10Z","Action":"output","Package":"m/c","Test":"TestPanics","Output":"panic: oh\n"}
{"Time":"2026-01-02T03:04:10Z","Action":"fail","Package":"m/c"}
{"ImportPath":"m/d","Action":"build-output","Output":"d.go:3: undefined: x\n"}
{"Time":"2026-01-02T03:04:10Z","Action":"fail","Package":"m/d","FailedBuild":"m/d"}
a line that is no event
`

func TestReport(t *testing.T) {
	var out strings.Builder
	r := newReport(&out)
	if err := r.read(strings.NewReader(events)); err != nil {
		t.Fatal(err)
	}
	r.add(map[string][]sample{"m/a": {
		{at: time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC), took: time.Second, cpu: map[string]time.Duration{"a.test": 500 * time.Millisecond, "etcd": 250 * time.Millisecond}},
	}})
	r.summarize(2)
	for _, want := range []string{
		"ok  \tm/a\t5.000s\n", "b_test.go:7: 1 is not 2", "panic: oh", "d.go:3: undefined: x", "a line that is no event",
		"\n    1  needs root: it kills\n", "\nFailed:\n  m/b TestFails\n    b_test.go:7: 1 is not 2\n  m/c TestPanics\n    panic: oh\n  m/d\n", "\n2 passed, 3 failed, 1 skipped\n",
		"2.0      0.8  m/a TestPasses    a.test 0.5, etcd 0.2\n", "1.0      0.0  m/a TestParallel  \n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	if strings.Contains(out.String(), "=== RUN") {
		t.Errorf("output of a test that passed:\n%s", &out)
	}
}

func TestParse(t *testing.T) {
	o, err := parse([]string{"-packages", "./a ./b", "-build", "server,node", "--", "-short"}, io.Discard)
	if err != nil || len(o.packages) != 2 || len(o.build) != 2 || len(o.flags) != 1 {
		t.Errorf("%+v, %v", o, err)
	}
	if _, err := parse([]string{"-build", "servers"}, io.Discard); err == nil || !strings.Contains(err.Error(), `unknown programs "servers": want server`) {
		t.Error(err)
	}
}

func TestBuild(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"etcd", "kube-apiserver", "kubelet"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv(kubetest.ProgramsEnv, dir)
	var out strings.Builder
	if code, err := run(t.Context(), []string{"build", "server", "node"}, &out, io.Discard); code != 0 || err != nil || out.String() != dir+"\n"+dir+"\n" {
		t.Errorf("exit code %d, %v: %q", code, err, &out)
	}
	for want, name := range map[string]string{`unknown programs "servers"`: "servers", "does not have kubectl": "clients"} {
		if code, err := run(t.Context(), []string{"build", name}, io.Discard, io.Discard); code == 0 || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("exit code %d, %v, want %q", code, err, want)
		}
	}
}

// Packages with the lock are separated from the others, those without goroutines run without the
// race detector, and those with tests that it would falsify run both ways.
func TestCalls(t *testing.T) {
	all, err := list(t.Context(), []string{module + "collector/logpattern", "../../bpf", "../../detector"})
	if err != nil {
		t.Fatal(err)
	}
	o := options{parallel: 3, flags: []string{"-race", "-short"}}
	if got, want := o.calls(filter(all, goPackage.kernel), 1), []call{{"-p=1", "-race", "-short", module + "bpf"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("kernel: %q\nwant %q", got, want)
	}
	want := []call{
		{"-p=3", "-race", "-short", module + "collector/logpattern"},
		{"-p=3", "-short", module + "detector"},
		{"-p=3", "-short", "-run=" + plainTests, module + "collector/logpattern"},
	}
	if got := o.calls(filter(all, func(p goPackage) bool { return !p.kernel() }), o.parallel); !reflect.DeepEqual(got, want) {
		t.Errorf("others: %q\nwant %q", got, want)
	}
}

// A test that fails by chance passes when it is run again, and is listed. A test that fails again,
// too many failed tests, or a package that ends before its tests fail the run.
func TestAgain(t *testing.T) {
	for name, c := range map[string]struct {
		tests, summary string
		code           int
	}{
		"by chance": {`func TestOnce(t *testing.T) { t.Run("sub", func(t *testing.T) { once(t, "a") }) }`, "3 passed, 0 failed, 0 skipped", 0},
		"always":    {`func TestAlways(t *testing.T) { t.Error("no") }`, "1 passed, 1 failed, 0 skipped", 1},
		"too many": {`func TestOnce(t *testing.T) { once(t, "a") }
func TestTwice(t *testing.T) { once(t, "b") }`, "1 passed, 2 failed, 0 skipped", 1},
		"a panic": {`func TestPanics(*testing.T) { if _, err := os.Stat("a"); err != nil { os.WriteFile("a", nil, 0o600); panic("no") } }`, "1 passed, 1 failed, 0 skipped", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			for file, text := range map[string]string{"go.mod": "module m\n", "a_test.go": `package m

import ("os"; "testing")

func TestPasses(*testing.T) {}

func once(t *testing.T, file string) {
	if _, err := os.Stat(file); err != nil {
		os.WriteFile(file, nil, 0o600)
		t.Error("not yet")
	}
}

` + c.tests} {
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var out strings.Builder
			code, err := run(t.Context(), []string{"-again", "1"}, &out, &out)
			if err != nil || code != c.code || !strings.Contains(out.String(), c.summary) {
				t.Errorf("exit code %d, %v, want %d and %s in\n%s", code, err, c.code, c.summary, &out)
			}
			if again := strings.Contains(out.String(), "Failed, and were run again:\n  m Test"); again != (name == "by chance" || name == "always") {
				t.Errorf("run again: %t\n%s", again, &out)
			}
		})
	}
}

// canceller cancels a run at its first output.
type canceller struct{ context.CancelFunc }

func (c canceller) Write(text []byte) (int, error) { c.CancelFunc(); return len(text), nil }

// An interrupted run has not passed.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	code, err := run(ctx, []string{"-packages", module + "collector/display"}, canceller{cancel}, io.Discard)
	if code != 2 || err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("exit code %d, %v", code, err)
	}
}
