package lint_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/lint"
	"github.com/kernosis/kernosis/detector/npd"
)

func everything(string) bool { return true }

func load(t *testing.T, name string) *npd.File {
	t.Helper()
	f, err := npd.LoadFile(filepath.Join("../npd/testdata/config", name), npd.Options{AnyProgram: true})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func check(t *testing.T, in lint.Input, kernels string) []string {
	t.Helper()
	k, err := lint.ParseKernels(kernels)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range lint.Check(in, shipped(t), k) {
		out = append(out, fmt.Sprintf("%s %s: %s", f.Level, f.Code, f.Message))
	}
	return out
}

func diff(t *testing.T, want, got any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestKernelMonitor checks node-problem-detector's own patterns, on today's kernels and
// on those they were written for.
func TestKernelMonitor(t *testing.T) {
	var in lint.Input
	in.FromNPD([]*npd.File{load(t, "kernel-monitor.json")})
	diff(t, []string{
		"warning missing-form: TaskHung: does not match every form of hung task",
		"error dead-pattern: KernelOops: matches lines of kernels up to 5.1 on amd64 only; kernels 5.10 to 7.3 use other wording",
		`error end-anchor: KernelOops: matches lines of kernels up to 4.14 on amd64 only: the match must end where the line ends, but " PTI" follows; end the pattern with .*`,
		"info reason-is-condition: CperHardwareErrorFatal: is also the name of its condition",
		"warning renamed-program: DockerHung: matches the old program name docker: it is dockerd since Docker 1.12 (2016)",
		"warning missing-form: DockerHung: does not match every form of hung task",
	}, check(t, in, "5.10-7.3"))
	diff(t, []string{
		"info missing-form: KernelOops: does not match what other architectures log for NULL pointer dereference",
		"info reason-is-condition: CperHardwareErrorFatal: is also the name of its condition",
		"warning renamed-program: DockerHung: matches the old program name docker: it is dockerd since Docker 1.12 (2016)",
	}, check(t, in, "4.14"))
}

// TestOtherShippedFiles checks the findings on node-problem-detector's other files.
func TestOtherShippedFiles(t *testing.T) {
	for name, want := range map[string][]string{
		"readonly-monitor.json":         nil,
		"kernel-monitor-counter.json":   nil,
		"systemd-monitor.json":          nil,
		"abrt-adaptor.json":             nil,
		"health-checker-kubelet.json":   {"info reason-is-condition: KubeletUnhealthy: is also the name of its condition"},
		"disk-log-message-filelog.json": {"warning reason-is-healthy: DiskBadBlock: condition DiskBadBlock also has this reason while nothing is wrong: rename one of them"},
	} {
		var in lint.Input
		in.FromNPD([]*npd.File{load(t, name)})
		t.Run(name, func(t *testing.T) { diff(t, want, check(t, in, "5.10-7.3")) })
	}
}

// TestShippedRules checks that our own patterns match the lines of every kernel.
func TestShippedRules(t *testing.T) {
	set, err := detector.Load(detector.Shipped())
	if err != nil {
		t.Fatal(err)
	}
	var in lint.Input
	in.FromRules(set, everything)
	for _, f := range lint.Check(in, shipped(t), lint.DefaultKernels()) {
		if f.Level != lint.Info {
			t.Error(f)
		}
	}
}

func TestPatterns(t *testing.T) {
	for _, tc := range []struct {
		name, pattern, reason string
		lines                 int
		want                  string // level code: part of the message
		suggest               string // part of a suggestion
	}{
		{name: "alive", pattern: `EXT4-fs error .*`},
		{name: "one device", pattern: `EXT4-fs error \(device nvme0n1p1\).*`},
		{name: "one task", pattern: `task nfsd:\w+ blocked (in I/O wait )?for more than \w+ seconds\.`},
		{name: "the OOM pattern of before 5.1", reason: "OOMKilling",
			pattern: `Kill process \d+ (.+) score \d+ or sacrifice child\nKilled process \d+ (.+) total-vm:\d+kB, anon-rss:\d+kB, file-rss:\d+kB.*`,
			want:    "error dead-pattern: matches lines of kernels up to 5.0 only", suggest: "5.4 and later: Memory cgroup out of memory: Killed process"},
		{name: "without .*", pattern: `Killed process \d+ \(.+\) total-vm:\d+kB`, want: `error end-anchor: never matches: the match must end where the line ends, but ", anon-rss:`},
		{name: "a wording that never was", pattern: `EXT4-fs fatal error on device \w+: .*`, want: "", suggest: ""},
		{name: "misspelt", pattern: `Bufer I/O error on dev \w+, logical block .*`, want: "warning dead-pattern: matches no known line of kernels 5.10 to 7.3; closest are their lines for buffered I/O error", suggest: "Buffer I/O error on dev"},
		{name: "misspelt, by its reason", reason: "UnregisterNetDevice", pattern: `netdevice unregister: waiting for \w+.*`, want: "warning dead-pattern: ", suggest: "unregister_netdevice: waiting for"},
		{name: "old block layer", pattern: `blk_update_request: I/O error, dev .*`, want: "warning old-wording: matches only lines of older kernels", suggest: "5.17 and later: I/O error, dev"},
		{name: "about something else", pattern: `flux capacitor drained`, want: "info not-judged: "},
		{name: "too many lines", pattern: `a\nb\nc`, lines: 2, want: "error buffer-too-small: spans 3 lines, but bufferSize is 2: never matches"},
		{name: "ends in a newline", pattern: `EXT4-fs error.*\n`, want: "error end-anchor: ends in a newline"},
		{name: "no fixed text", pattern: `\d+ \w+ \d+`, want: "warning costly-pattern: has no fixed text"},
		{name: "large", pattern: `EXT4-fs error .{400,600}`, want: "warning costly-pattern: compiles to "},
		{name: "too large", pattern: `(?:abcdefghij){150}`, want: "error bad-pattern: "},
		{name: "cries wolf", pattern: `(?i)failed.*`, want: "warning matches-healthy: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.reason == "" {
				tc.reason = "R"
			}
			in := lint.Input{Rules: []lint.Rule{{File: "f.json", Line: 3, Reason: tc.reason, Expr: tc.pattern, Lines: tc.lines, AnchorEnd: true, Kernel: true}}}
			found := lint.Check(in, shipped(t), lint.DefaultKernels())
			if tc.want == "" {
				for _, f := range found {
					if tc.name == "alive" || tc.name == "one device" || tc.name == "one task" {
						t.Error(f)
					}
				}
				return
			}
			level, rest, _ := strings.Cut(tc.want, " ")
			code, msg, _ := strings.Cut(rest, ": ")
			i := slices.IndexFunc(found, func(f lint.Finding) bool { return string(f.Level) == level && f.Code == code })
			if i < 0 {
				t.Fatalf("no %s, but %v", tc.want, found)
			}
			if f := found[i]; !strings.Contains(f.Message, tc.reason+": "+msg) || f.File != "f.json" || f.Line != 3 {
				t.Error(f)
			}
			if s := strings.Join(found[i].Suggest, "\n"); !strings.Contains(s, tc.suggest) {
				t.Errorf("suggests %s", s)
			}
		})
	}
}

// TestPeersCoverForms: two rules of one reason may share the forms of a fault.
func TestPeersCoverForms(t *testing.T) {
	rule := func(line int, expr string) lint.Rule {
		return lint.Rule{File: "f", Line: line, Reason: "TaskHung", Expr: expr, AnchorEnd: true, Kernel: true}
	}
	in := lint.Input{Rules: []lint.Rule{rule(1, `task .+ blocked for more than \w+ seconds\.`), rule(2, `task .+ blocked in I/O wait for more than \w+ seconds\.`)}}
	diff(t, []string(nil), check(t, in, "5.10-7.3"))
}

func TestDuplicatesAndNames(t *testing.T) {
	rule := func(line int, condition, reason, expr string) lint.Rule {
		r := lint.Rule{File: "f", Line: line, Reason: reason, Condition: condition, Expr: expr, AnchorEnd: true}
		if condition != "" {
			r.Healthy = "Fine"
		}
		return r
	}
	in := lint.Input{
		Conditions: []lint.Condition{{Type: "A"}, {Type: "B"}, {Type: "C", File: "f", Line: 9}},
		Rules:      []lint.Rule{rule(1, "", "X", "xxx text"), rule(2, "A", "X", "xxx text"), rule(3, "", "Y", "xxx text"), rule(4, "B", "Fine", "yyy text"), rule(5, "B", "A", "zzz text"), rule(6, "B", "B", "www text")},
	}
	diff(t, []string{
		"warning duplicate: Y: has the same pattern as f:1 (X)",
		"warning reason-is-healthy: Fine: condition B also has this reason while nothing is wrong: rename one of them",
		"warning reason-is-condition: A: is the name of a condition that this rule does not set",
		"info reason-is-condition: B: is also the name of its condition",
		"warning unset-condition: condition C: no rule sets it",
	}, check(t, in, "6.1"))
}
