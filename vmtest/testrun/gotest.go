package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// lockPackage is imported by the tests of packages that need the kernel to themselves.
const lockPackage = "github.com/kernosis/kernosis/vmtest/kernellock"

// raceFile is a test file of packages in which the race detector makes a difference, as to
// the number of allocations. It has the build constraint race. plainTests are the tests that
// skip themselves, or most of their cases, under the race detector: those of allocations, and
// those with one goroutine at a time that take many times as long with it.
const (
	raceFile   = "race_test.go"
	plainTests = "Alloc|ForgedLines|RandomRuns"
)

// packages are some of a run.
type packages struct {
	all   []string
	plain []string // of these, may have tests that run without the race detector only
}

// list returns the packages that need the kernel to themselves, and the others.
func list(ctx context.Context, patterns []string) (alone, together packages, err error) {
	const format = `{{.ImportPath}}{{range .TestImports}} {{.}}{{end}}{{range .XTestImports}} {{.}}{{end}}{{range .IgnoredGoFiles}} {{.}}{{end}}`
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-f", format}, patterns...)...)
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		return alone, together, fmt.Errorf("go list: %w: %s", err, strings.TrimSpace(complaints.String()))
	}
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		some := &together
		if slices.Contains(words[1:], lockPackage) {
			some = &alone
		}
		some.all = append(some.all, words[0])
		if slices.Contains(words[1:], raceFile) {
			some.plain = append(some.plain, words[0])
		}
	}
	return alone, together, nil
}

// patience is how long test processes have to clean up after an interrupt.
const patience = 20 * time.Second

// goTest runs go test once. That a test fails is for the report, not an error.
func goTest(ctx context.Context, report *report, args call, env []string, stderr io.Writer, sample bool) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	if slices.Contains(args, "-race") {
		cmd.Env = append(cmd.Env, "CGO_ENABLED=1")
	}
	cmd.Stderr = stderr
	// go does not hand on a signal to the tests: the whole group gets it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = patience
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	var sampler *sampler
	if sample {
		sampler = startSampler(cmd.Process.Pid)
	}
	readErr := report.read(out)
	waitErr := cmd.Wait()
	if sampler != nil {
		report.add(sampler.stop())
	}
	if exit := new(exec.ExitError); waitErr != nil && !errors.As(waitErr, &exit) {
		return waitErr
	}
	if readErr != nil {
		return fmt.Errorf("read the output of go test: %w", readErr)
	}
	if waitErr != nil {
		report.failedRun()
	}
	return nil
}
