package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/kernosis/kernosis/collector"
	"github.com/kernosis/kernosis/collector/bounded"
)

func newRun() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Detect faults on this machine; no cluster needed",
		Long: `Detect faults on this machine and print each with its subject, its cause and
the rule that matched. Needs root. Without root, or on a kernel that lacks a
feature, run reports what is missing and runs the rest.`,
		Example: `  sudo kernosis run
  sudo kernosis run -o json --rules-dir /etc/kernosis/rules --target 10.0.0.7:8080`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadConfig(cmd, os.Environ())
			if err != nil {
				return err
			}
			return run(cmd.Context(), cfg, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	runFlags(cmd.Flags())
	completeSettings(cmd)
	return cmd
}

func parseLevel(s string) (slog.Level, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(s)); err != nil {
		return l, fmt.Errorf("%q is none of debug, info, warn, error", s)
	}
	return l, nil
}

func run(ctx context.Context, cfg agentConfig, stdout, stderr io.Writer) (err error) {
	level, err := parseLevel(cfg.LogLevel)
	if err != nil {
		return err
	}
	stdout, stderr = &patient{w: stdout}, &patient{w: stderr}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
	logConfigWarnings(log, cfg.warnings)
	collectGarbage(startPercent)
	p := &parts{cfg: cfg, log: log, stdout: stdout}
	defer func() { err = errors.Join(err, p.close()) }()
	if err := p.open(); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	if err := p.serve(ctx, g); err != nil {
		return err
	}
	p.start(ctx, g)
	return failed(wait(ctx, g))
}

// endWithin is how long the parts have to end. Beyond that what hangs in the kernel is left
// to it: 30 s after SIGTERM kubelet kills, and programs are to be detached before.
const endWithin = 15 * time.Second

// wait waits until the parts have ended, and after the end of ctx no longer than they have.
func wait(ctx context.Context, g *errgroup.Group) error {
	ended := make(chan error, 1)
	go func() { ended <- g.Wait() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	timer := time.NewTimer(endWithin)
	defer timer.Stop()
	select {
	case err := <-ended:
		return err
	case <-timer.C:
		return fmt.Errorf("ended without parts that have not ended for %s: does the state disk hang?", endWithin)
	}
}

// patient is a writer whose reader may hang: a container's output ends on a disk. It gives a
// write a second. What has no answer then is written when the reader goes on, and what comes
// before that is dropped, with an error.
type patient struct {
	w     io.Writer
	calls bounded.Calls
}

func (p *patient) Write(b []byte) (int, error) {
	b = bytes.Clone(b)
	return bounded.Do(&p.calls, time.Second, func() (int, error) { return p.w.Write(b) })
}

// logReports logs what this machine can't do, once, at start.
func logReports(log *slog.Logger, sources *collector.Sources) {
	attached := 0
	for _, r := range sources.Reports() {
		switch r.State {
		case "attached", "adopted":
			attached++
		case "absent", "forbidden", "failed":
			log.Debug("program not attached", "stem", r.Stem, "program", r.Program, "state", r.State, "reason", r.Reason)
		}
	}
	log.Info("watching", "programs", attached)
}
