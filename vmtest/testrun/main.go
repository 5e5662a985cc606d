// Command testrun runs go test and prints its results, then a summary: how many tests
// passed, failed and were skipped and why, and on request which took longest and what ran
// meanwhile. It lends one API server to all test packages.
//
//	testrun [-slow N] -- GO-TEST-ARGUMENTS...
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/kernosis/kernosis/reporter/kubetest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
	}
	os.Exit(code)
}

// run returns what the process exits with: what go test did, or 1 where a test failed, or 2
// with an error where no test could be run.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (code int, err error) {
	flags := flag.NewFlagSet("testrun", flag.ContinueOnError)
	flags.SetOutput(stderr)
	slow := flags.Int("slow", 0, "list this many of the slowest tests")
	if err := flags.Parse(args); err != nil {
		return 2, err
	}
	began := time.Now()
	dir, err := os.MkdirTemp("", "kernosis-testrun-")
	if err != nil {
		return 2, err
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "server.sock")
	end, err := kubetest.Lend(ctx, socket)
	if err != nil {
		return 2, err
	}
	defer func() { err = errors.Join(err, end()) }()
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, flags.Args()...)...)
	cmd.Env = append(os.Environ(), kubetest.ServerEnv+"="+socket)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Stderr = stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 2, err
	}
	if err := cmd.Start(); err != nil {
		return 2, err
	}
	report := newReport(stdout)
	var sampler *sampler
	if *slow > 0 {
		sampler = startSampler(cmd.Process.Pid)
	}
	readErr := report.read(out)
	waitErr := cmd.Wait()
	if sampler != nil {
		report.samples = sampler.stop()
	}
	report.summarize(time.Since(began), *slow)
	if readErr != nil {
		return 2, fmt.Errorf("read the output of go test: %w", readErr)
	}
	var exit *exec.ExitError
	switch {
	case errors.As(waitErr, &exit):
		return max(exit.ExitCode(), 1), nil
	case waitErr != nil:
		return 2, waitErr
	case report.failed > 0:
		return 1, nil
	}
	return 0, nil
}
