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
// would skip themselves under the race detector.
const (
	raceFile   = "race_test.go"
	plainTests = "Alloc"
)

// packages are those of a run.
type packages struct {
	together []string // may run beside each other
	alone    []string // need the kernel to themselves
	plain    []string // of these, may have tests that run without the race detector only
}

func list(ctx context.Context, patterns []string) (packages, error) {
	const format = `{{.ImportPath}}{{range .TestImports}} {{.}}{{end}}{{range .XTestImports}} {{.}}{{end}}{{range .IgnoredGoFiles}} {{.}}{{end}}`
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-f", format}, patterns...)...)
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		return packages{}, fmt.Errorf("go list: %w: %s", err, strings.TrimSpace(complaints.String()))
	}
	var p packages
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		if slices.Contains(words[1:], lockPackage) {
			p.alone = append(p.alone, words[0])
		} else {
			p.together = append(p.together, words[0])
		}
		if slices.Contains(words[1:], raceFile) {
			p.plain = append(p.plain, words[0])
		}
	}
	return p, nil
}

// patience is how long test processes have to clean up after an interrupt.
const patience = 20 * time.Second

// goTest runs go test once, and reports whether a test failed.
func goTest(ctx context.Context, report *report, args, env []string, stderr io.Writer, sample bool) (failed bool, err error) {
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
		return false, err
	}
	if err := cmd.Start(); err != nil {
		return false, err
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
		return false, waitErr
	}
	if readErr != nil {
		return false, fmt.Errorf("read the output of go test: %w", readErr)
	}
	return waitErr != nil, nil
}
