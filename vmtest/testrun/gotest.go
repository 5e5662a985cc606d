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

// list returns the packages of patterns: those that may run beside each other, and those
// that need the kernel to themselves.
func list(ctx context.Context, patterns []string) (together, alone []string, err error) {
	const format = `{{.ImportPath}}{{range .TestImports}} {{.}}{{end}}{{range .XTestImports}} {{.}}{{end}}`
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-f", format}, patterns...)...)
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		return nil, nil, fmt.Errorf("go list: %w: %s", err, strings.TrimSpace(complaints.String()))
	}
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		if slices.Contains(words[1:], lockPackage) {
			alone = append(alone, words[0])
		} else {
			together = append(together, words[0])
		}
	}
	return together, alone, nil
}

// patience is how long test processes have to clean up after an interrupt.
const patience = 20 * time.Second

// goTest runs go test once, and reports whether a test failed.
func goTest(ctx context.Context, report *report, args, env []string, stderr io.Writer, sample bool) (failed bool, err error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, args...)...)
	cmd.Env = append(os.Environ(), env...)
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
