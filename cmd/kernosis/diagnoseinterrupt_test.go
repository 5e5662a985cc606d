package main

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// slowSet returns a set with two operations that ask the server. The second one may be slow.
func slowSet(port uint16) string {
	return strings.NewReplacer("check-lock-holder", "wait", ", to: [2, 3]}", ", to: [2]}", "  - {id: 3, operation: mend}\n", "", "name: mend", "name: wait",
		"spec:\n  processor: {httpServer: {port: "+strconv.Itoa(int(port))+", path: /mend}}", "spec:\n  effect: Collect\n  processor: {httpServer: {port: "+strconv.Itoa(int(port))+", path: /wait}}").
		Replace(setOfDemo(port))
}

// Ctrl-C interrupts a run of the real program. The same command with the run's ID continues after the
// operations that have ended. Meanwhile no other run starts in the folder, and the run can be shown.
func TestAnInterruptedRunGoesOn(t *testing.T) {
	h, state := newHook(t), t.TempDir()
	var first atomic.Int64
	waits, release := make(chan struct{}, 1), make(chan struct{})
	var once sync.Once
	free := func() { once.Do(func() { close(release) }) }
	t.Cleanup(free)
	h.answer = func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/wait" {
			first.Add(1)
		} else {
			waits <- struct{}{}
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
		fmt.Fprint(w, `{"found":"it"}`)
	}
	path := writeSet(t, "set.yaml", slowSet(h.port))
	args := []string{"run", "-f", path, "-p", "a=b", "--id", "d1", "--state-dir", state}
	cmd := exec.CommandContext(t.Context(), os.Args[0], append([]string{"diagnose"}, args...)...)
	var out, errs bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), beKernosis+"=1"), &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-waits:
	case <-time.After(testenv.Within(time.Minute)):
		t.Error("the second operation does not begin")
	}
	code, _, refused := diagnoseCommand(t.Context(), "run", "-f", path, "--id", "d2", "--state-dir", state)
	if code != output.ExitInput || !strings.Contains(refused, "another diagnosis is running in ") {
		t.Errorf("exit code %d\n%s", code, refused)
	}
	if _, shown, _ := diagnoseCommand(t.Context(), "show", "d1", "--state-dir", state); !strings.Contains(shown, "has not ended") ||
		!strings.Contains(shown, "OPEN      running, or interrupted\n") || !strings.Contains(shown, "Collect · Running") {
		t.Errorf("%s", shown)
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the exit code is checked below
	if code := cmd.ProcessState.ExitCode(); code != output.ExitOpen || !strings.Contains(out.String(), "\n  1  ask   done ") ||
		!strings.Contains(out.String(), "OPEN      running, or interrupted\n") || errs.String() != "kernosis: interrupted; to resume, repeat the command with --id d1\n" {
		t.Errorf("exit code %d\n%s%s", code, &out, &errs)
	}
	free()
	// It keeps the parameters that it was started with.
	code, again, stderr := diagnoseCommand(t.Context(), "run", "-f", path, "--id", "d1", "--state-dir", state)
	if code != output.ExitOK || first.Load() != 1 || !strings.Contains(again, "PATH      1 ask → 2 wait\n") || stderr != "" {
		t.Errorf("exit code %d, the first operation ran %d times\n%s%s", code, first.Load(), again, stderr)
	}
	if _, shown, _ := diagnoseCommand(t.Context(), "show", "d1", "--state-dir", state); !strings.Contains(shown, "parameters: a=b\n") {
		t.Errorf("%s", shown)
	}
}
