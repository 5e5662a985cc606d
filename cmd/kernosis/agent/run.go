// Package agent implements the process that runs on a node, with or without a cluster: it opens the
// sources, passes their events through the rules, and reports the results.
//
//	source ──► pipeline: engine ──► journal ──► console, conditions, Events, metrics, page
//	                        └─────────────────► Diagnoses
//
// [Load] reads the settings of flags, environment and file into a [Config], and [Run] runs an agent
// until its context ends. parts.open opens each part after those it depends on; they are closed in
// reverse order.
//
// The commands read an agent's state folder: the journal ([JournalDir]), the engine's state
// ([EngineFile]), mutes ([MutesFile]) and Diagnoses ([ReadDiagnosis]).
package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kernosis/kernosis/cmd/kernosis/config"
	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/collector"
	"github.com/kernosis/kernosis/collector/bounded"
)

// Run runs an agent until ctx ends.
func Run(ctx context.Context, version string, cfg Config, stdout, stderr io.Writer) (err error) {
	if cfg.isAgent {
		if err := cfg.readNPD(); err != nil {
			return err
		}
		if err := cfg.connect(version); err != nil {
			return err
		}
	}
	level, err := config.ParseLevel(cfg.LogLevel)
	if err != nil {
		return err
	}
	stdout, stderr = &patient{w: stdout}, &patient{w: stderr}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
	config.LogWarnings(log, cfg.warnings)
	collectGarbage(startPercent)
	p := &parts{version: version, cfg: cfg, log: log, stdout: stdout}
	defer func() { err = errors.Join(err, p.close()) }()
	if err := p.open(); err != nil {
		return err
	}
	g, running := errgroup.WithContext(ctx)
	if err := p.serve(running, g); err != nil {
		return err
	}
	p.start(running, g)
	return output.Failed(wait(ctx, running, g))
}

// endWithin is how long the parts have to end. Parts that hang in the kernel longer are abandoned:
// kubelet kills the agent 30 s after SIGTERM, and programs must be detached before that.
const endWithin = 15 * time.Second

// wait waits until the parts have ended, but at most endWithin after the end of running. That is
// the parts' context: it ends with ctx or when a part fails.
func wait(ctx, running context.Context, g *errgroup.Group) error {
	ended := make(chan error, 1)
	go func() { ended <- g.Wait() }()
	select {
	case err := <-ended:
		return err
	case <-running.Done():
	}
	timer := time.NewTimer(endWithin)
	defer timer.Stop()
	select {
	case err := <-ended:
		return err
	case <-timer.C:
		err := fmt.Errorf("some parts have not stopped within %s, exiting without them: does the state disk hang?", endWithin)
		if cause := context.Cause(running); !errors.Is(cause, context.Cause(ctx)) {
			return errors.Join(cause, err)
		}
		return err
	}
}

// patient is a writer for a reader that may hang: a container's output ends on a disk. A write may
// take a second. A longer write is completed when the reader continues; until then, other writes
// are dropped with an error.
type patient struct {
	w     io.Writer
	calls bounded.Calls
}

func (p *patient) Write(b []byte) (int, error) {
	b = bytes.Clone(b)
	return bounded.Do(&p.calls, time.Second, func() (int, error) { return p.w.Write(b) })
}

// logReports logs, once at the start, which programs could not be attached.
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
