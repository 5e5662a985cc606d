package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/process"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/vmtest/operationtest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// scriptsIn returns Scripts with the usual bounds and with cgroups below parent.
func scriptsIn(parent string) *Scripts {
	return openScripts(func() (string, error) { return parent, nil }, usualBounds(), slog.New(slog.DiscardHandler))
}

// testScripts returns Scripts with a cgroup for this test, and the path of that cgroup.
func testScripts(t *testing.T, change ...func(*scriptBounds)) (s *Scripts, parent string) {
	t.Helper()
	own, err := process.OwnCgroup()
	if err != nil {
		t.Skipf("no control group may be made here: %v", err)
	}
	parent = filepath.Join(own, "kernosis-operation-test-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(parent, 0o755); err != nil {
		t.Skipf("no control group may be made here: %v", err)
	}
	t.Cleanup(func() {
		testenv.Until(t, "end of the group", operationtest.Longest, func() bool { return os.Remove(parent) == nil })
	})
	bounds := usualBounds()
	for _, f := range change {
		f(&bounds)
	}
	s = openScripts(func() (string, error) { return parent, nil }, bounds, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	t.Cleanup(s.Close)
	return s, parent
}

// runScript runs a script with the result key x.
func runScript(t *testing.T, s *Scripts, text string, limit time.Duration) (operation.Output, *operationtest.Artifacts, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	call, kept, _ := operationtest.NewCall(nil)
	out, err := s.Run(ctx, &v1alpha1.ScriptRunner{Script: text, OperationResultKey: "x"}, call)
	return out, kept, err
}

func TestScript(t *testing.T) {
	s, _ := testScripts(t)
	call, _, _ := operationtest.NewCall(operation.Values{"podName": "db-0", "operation.other.output": "two\nlines", "empty": "", "rest": "-x $HOME `id`"})
	out, err := s.Run(t.Context(), &v1alpha1.ScriptRunner{
		Script:             "#!/bin/false\nprintf '<%s>' \"$@\"\n",
		ArgKeys:            []string{"podName", "operation.other.output", "empty", "rest", "podName"},
		OperationResultKey: "look",
	}, call)
	want := map[string]string{"operation.look.output": "<db-0><two\nlines><><-x $HOME `id`><db-0>", "operation.look.error": ""}
	if err != nil || out.Truncated || !maps.Equal(out.Results, want) {
		t.Errorf("%+v, %v", out, err)
	}
	if out, err := s.Run(t.Context(), &v1alpha1.ScriptRunner{Script: "echo nobody asks"}, call); err != nil || out.Results != nil {
		t.Errorf("%+v, %v", out, err)
	}
}

func TestScriptFails(t *testing.T) {
	s, _ := testScripts(t)
	for _, tt := range []struct{ name, text, want string }{
		{"exit code", "echo out; echo why >&2; exit 3", "script ended with exit code 3: why"},
		{"says nothing", "exit 1", "script ended with exit code 1"},
		{"signal", "kill -SEGV $$", "script was ended by SIGSEGV"},
		{"killed", "echo last words >&2; kill -KILL $$", "script was ended by SIGKILL: last words"},
		{"command", "no-such-command --x", "script ended with exit code 127: /proc/self/fd/3: 1: no-such-command: not found"},
		{"syntax", "if then fi (", "script ended with exit code 2: /proc/self/fd/3: 1: Syntax error: "},
		{"control characters", `printf 'a\033[2J\000\377' >&2; exit 1`, `script ended with exit code 1: a\x1b[2J\x00\xff`},
		{"long", `i=0; while [ $i -lt 1000 ]; do i=$((i+1)); echo line $i >&2; done; exit 9`, "script ended with exit code 9: …"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, _, err := runScript(t, s, tt.text, operationtest.Longest)
			if err == nil || !strings.HasPrefix(err.Error(), tt.want) || len(err.Error()) > 3*maxStderr {
				t.Fatalf("%v, want %s", err, tt.want)
			}
			if out.Results["operation.x.error"] != err.Error() {
				t.Errorf("%q", out.Results)
			}
			if killed := strings.Contains(err.Error(), "was ended by SIG"); killed != operationtest.OutcomeUnknown(err) {
				t.Errorf("%v: is its outcome unknown? want %v", err, killed)
			}
			if tt.name == "long" && !strings.HasSuffix(err.Error(), `line 999\nline 1000`) {
				t.Error(err)
			}
		})
	}
}

func TestScriptHasOnlyItsEnvironment(t *testing.T) {
	t.Setenv("KERNOSIS_SECRET", "token")
	s, _ := testScripts(t)
	out, _, err := runScript(t, s, "env | sort; ls /proc/self/fd | tr '\\n' ' '; cat; pwd; ulimit -c; ulimit -d", operationtest.Longest)
	if err != nil {
		t.Fatal(err)
	}
	text := out.Results["operation.x.output"]
	for line := range strings.SplitSeq(text, "\n") {
		name, _, isSet := strings.Cut(line, "=")
		switch name {
		case "PATH", "LANG", "PWD", "OLDPWD", "_", "SHLVL": // the last four are the shell's own
		default:
			if isSet {
				t.Errorf("environment has %s", line)
			}
		}
	}
	if !strings.Contains(text, "PATH=/usr/local/sbin:") || !strings.Contains(text, "LANG=C.UTF-8\n") || !strings.Contains(text, "\n0 1 2 3 4 /\n") ||
		!strings.HasSuffix(text, "/\n0\n524288\n") {
		t.Errorf("%q", text)
	}
}

func TestScriptUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root runs scripts as others")
	}
	const look = "id -u; id -g; id -G; grep -E '^(NoNewPrivs|CapEff):' /proc/self/status | tr -s ' \\t' ' '; " +
		"{ echo x >/proc/self/fd/3; } 2>/dev/null && echo writable; cat /etc/shadow 2>/dev/null; true"
	const want = "65534\n65534\n65534\nCapEff: 0000000000000000\nNoNewPrivs: 1\n"
	s, _ := testScripts(t)
	if out, _, err := runScript(t, s, look, operationtest.Longest); err != nil || out.Results["operation.x.output"] != want {
		t.Errorf("%q, %v", out.Results, err)
	}
}

// TestScriptIsEndedWithAllItStarted: even processes that have left its process group and session.
func TestScriptIsEndedWithAllItStarted(t *testing.T) {
	testenv.OnlyInTestAll(t)
	s, parent := testScripts(t)
	for name, text := range map[string]string{
		"hangs":             "echo begun; sleep 314159",
		"forks and hangs":   "echo begun; sleep 314159 & sleep 314159 & wait",
		"ignores signals":   "trap '' TERM INT HUP; echo begun; while :; do sleep 314159; done",
		"daemon":            "echo begun; setsid sh -c 'setsid sleep 314159 & sleep 314159' </dev/null >/dev/null 2>&1 & sleep 314159",
		"daemon left alone": "echo begun; (setsid sh -c 'setsid sleep 314159 & sleep 314159' </dev/null >/dev/null 2>&1 &); exit 0",
		"holds the output":  "echo begun; (setsid sleep 314159 &); exit 0",
	} {
		t.Run(name, func(t *testing.T) {
			out, _, err := runScript(t, s, text, 2*time.Second)
			ends := strings.HasSuffix(text, "exit 0")
			if ends && err != nil {
				t.Error(err)
			}
			if !ends && (!errors.Is(err, context.DeadlineExceeded) || err.Error() != "script was killed: it exceeded its timeout") {
				t.Error(err)
			}
			if out.Results["operation.x.output"] != "begun\n" {
				t.Errorf("%q", out.Results)
			}
			testenv.Until(t, "end of its processes", operationtest.Longest, func() bool { return running(t, "sleep\x00314159") == 0 })
			if left, _ := filepath.Glob(parent + "/kernosis-scripts-*/*/cgroup.procs"); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// running counts processes by their command line.
func running(t *testing.T, cmdline string) int {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, p := range all {
		if b, err := os.ReadFile(p); err == nil && strings.HasPrefix(string(b), cmdline) {
			n++
		}
	}
	return n
}

func TestScriptBomb(t *testing.T) {
	s, _ := testScripts(t, func(b *scriptBounds) { b.Processes = 40 })
	_, _, err := runScript(t, s, "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); setsid sleep 314158 & done; wait", operationtest.Longest/2)
	if err == nil {
		t.Error("it succeeds")
	}
	testenv.Until(t, "end of its processes", operationtest.Longest, func() bool { return running(t, "sleep\x00314158") == 0 })
}

func TestScriptMemory(t *testing.T) {
	s, _ := testScripts(t, func(b *scriptBounds) { b.Memory = 64 << 20 })
	_, _, err := runScript(t, s, "tail /dev/zero", operationtest.Longest/2)
	if err == nil || errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "memory exhausted") && !strings.Contains(err.Error(), "SIGKILL") {
		t.Errorf("%v", err)
	}
}

func TestScriptOutput(t *testing.T) {
	s, _ := testScripts(t, func(b *scriptBounds) { b.output = 100_000 })
	out, kept, err := runScript(t, s, "head -c 300000 /dev/zero | tr '\\0' x; echo end >&2", operationtest.Longest)
	whole := kept.Files["output.txt"]
	if err != nil || !out.Truncated || len(out.Results["operation.x.output"]) != operation.MaxResult || !strings.HasSuffix(out.Results["operation.x.output"], "x…") {
		t.Errorf("%d bytes, %v", len(out.Results["operation.x.output"]), err)
	}
	if !strings.HasPrefix(whole, strings.Repeat("x", 1000)) || !strings.HasSuffix(whole, "x\n[kernosis: 200004 more bytes omitted]\n") {
		t.Errorf("%d bytes, ends with %q", len(whole), whole[max(0, len(whole)-60):])
	}
	out, kept, err = runScript(t, s, `printf '\000\001\377\033[0m\tä\r\n'`, operationtest.Longest)
	if err != nil || out.Truncated || out.Results["operation.x.output"] != `\x00\x01\xff\x1b[0m`+"\tä\\r\n" || len(kept.Files) > 0 {
		t.Errorf("%q, %v", out.Results, err)
	}
	// The output is also available if the script fails.
	_, kept, err = runScript(t, s, "head -c 5000 /dev/zero; exit 4", operationtest.Longest)
	if err == nil || !bytes.Equal([]byte(kept.Files["output.txt"]), make([]byte, 5000)) {
		t.Errorf("%d bytes, %v", len(kept.Files["output.txt"]), err)
	}
	// Endless output is read as fast as it comes, and dropped.
	_, _, err = runScript(t, s, "cat /dev/zero", 500*time.Millisecond)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func TestScriptIsRefused(t *testing.T) {
	none := scriptsIn(t.TempDir() + "/no")
	if _, err := none.Run(t.Context(), &v1alpha1.ScriptRunner{Script: "true"}, &operation.Call{}); err == nil || !strings.Contains(err.Error(), "they need their own control groups: stat") {
		t.Error(err)
	}
	s, _ := testScripts(t)
	for _, tt := range []struct {
		script v1alpha1.ScriptRunner
		want   string
	}{
		{v1alpha1.ScriptRunner{Script: " \n"}, "scriptRunner: script is empty"},
		{v1alpha1.ScriptRunner{Script: "a\x00b", OperationResultKey: "a b"}, `scriptRunner: script contains a NUL; operationResultKey: key "operation.a b.output" contains characters other than letters, digits and ._-/`},
		{v1alpha1.ScriptRunner{Script: strings.Repeat("#", maxScript+1)}, "scriptRunner: script has 262145 bytes, at most 262144"},
		{v1alpha1.ScriptRunner{Script: "true", ArgKeys: make([]string, 65)}, "scriptRunner: 65 argKeys, at most 64"},
		{v1alpha1.ScriptRunner{Script: "true", ArgKeys: []string{"a", "no\n", "b", "nul"}}, `scriptRunner: argument "no\n" is neither a parameter nor a result of a dependence; "nul" contains a NUL`},
	} {
		_, err := s.Run(t.Context(), &tt.script, &operation.Call{Parameters: operation.Values{"a": "", "b": "", "nul": "\x00"}})
		if err == nil || err.Error() != tt.want {
			t.Errorf("%v, want %s", err, tt.want)
		}
	}
}

func TestScriptIsCancelled(t *testing.T) {
	s, _ := testScripts(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := s.Run(ctx, &v1alpha1.ScriptRunner{Script: "sleep 314157"}, &operation.Call{})
		done <- err
	}()
	testenv.Until(t, "start", operationtest.Longest, func() bool { return running(t, "sleep\x00314157") == 1 })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) || err.Error() != "script was killed: it was cancelled" {
		t.Error(err)
	}
}

// An agent and a command in the same cgroup: neither kills the other's scripts, and the next
// process kills what a killed command has left.
func TestScriptsOfTwoProcesses(t *testing.T) {
	agent, parent := testScripts(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := agent.Run(ctx, &v1alpha1.ScriptRunner{Script: "sleep 314158"}, &operation.Call{})
		done <- err
	}()
	testenv.Until(t, "start", operationtest.Longest, func() bool { return running(t, "sleep\x00314158") == 1 })
	left := filepath.Join(parent, groupsDir+"-2", "7")
	if err := os.MkdirAll(left, 0o755); err != nil {
		t.Fatal(err)
	}
	command := scriptsIn(parent)
	if _, err := os.Stat(filepath.Dir(left)); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if info, err := command.lock.Stat(); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("a script could lock the folder: %v, %v", info, err)
	}
	if _, _, err := runScript(t, command, "true", operationtest.Longest); err != nil {
		t.Error(err)
	}
	command.Close()
	if running(t, "sleep\x00314158") != 1 {
		t.Error("the agent's script was ended")
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, _, err := runScript(t, agent, "true", operationtest.Longest); err != nil {
		t.Error(err)
	}
}

// Processes that start at the same time don't remove each other's folders.
func TestScriptsOfProcessesThatStartAtOnce(t *testing.T) {
	_, parent := testScripts(t)
	var wg sync.WaitGroup
	defer wg.Wait()
	for range 8 {
		wg.Go(func() {
			for range 5 {
				s := scriptsIn(parent)
				if _, err := s.Run(t.Context(), &v1alpha1.ScriptRunner{Script: "true"}, &operation.Call{}); err != nil {
					t.Error(err)
				}
				s.Close()
			}
		})
	}
}

func TestSealed(t *testing.T) {
	f, err := sealed("text")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("x"), 0); !errors.Is(err, unix.EPERM) {
		t.Error(err)
	}
	if err := f.Truncate(0); !errors.Is(err, unix.EPERM) {
		t.Error(err)
	}
	if b, err := exec.Command("cat", fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd())).Output(); err != nil || string(b) != "text" {
		t.Errorf("%q, %v", b, err)
	}
}

func BenchmarkScript(b *testing.B) {
	own, err := process.OwnCgroup()
	if err != nil {
		b.Skip(err)
	}
	s := scriptsIn(own)
	defer s.Close()
	for b.Loop() {
		if _, err := s.Run(b.Context(), &v1alpha1.ScriptRunner{Script: "echo x", OperationResultKey: "x"}, &operation.Call{}); err != nil {
			b.Fatal(err)
		}
	}
}
