package logsource

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/logpattern"
)

// Options is what the logs share.
type Options struct {
	// StateDir is where positions are kept; "": nowhere, so that each start begins
	// by Lookback.
	StateDir string
	// HostRoot is where the host's file system is; "": "/".
	HostRoot string
	// Log takes what is worth a note; nil: nothing does.
	Log *slog.Logger
}

// Emit takes one event, which is valid only during the call. Calls come from
// several goroutines.
type Emit func(*event.Event)

// Sources read all configured logs. Make them with New.
type Sources struct {
	logs       []*source
	patterns   atomic.Pointer[logpattern.Set]
	unreported atomic.Int64 // logs that have not reported yet how they are
}

// New returns the sources of the logs, or what is wrong with them. It opens
// nothing.
func New(configs []Config, patterns *logpattern.Set, o Options) (*Sources, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Sources{}
	s.patterns.Store(patterns)
	var errs []error
	if len(configs) > MaxLogs {
		errs = append(errs, fmt.Errorf("%d logs: at most %d are read", len(configs), MaxLogs))
	}
	names := make(map[string]bool)
	for i := range configs {
		c := configs[i]
		if err := c.Check().Err(); err != nil {
			errs = append(errs, fmt.Errorf("log %q: %w", c.Name, err))
		}
		if names[c.Name] {
			errs = append(errs, fmt.Errorf("log %q: stands twice", c.Name))
		}
		names[c.Name] = true
		s.logs = append(s.logs, newSource(c, o, &s.patterns))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return s, nil
}

// SetPatterns puts other patterns in force, for every log from its next line on.
// It is safe for concurrent use.
func (s *Sources) SetPatterns(set *logpattern.Set) { s.patterns.Store(set) }

// Stats returns what each log has counted since New, in the order of the
// configuration. It is safe for concurrent use.
func (s *Sources) Stats() []Stats {
	out := make([]Stats, len(s.logs))
	for i, l := range s.logs {
		out[i] = l.statsNow()
	}
	return out
}

// Run reads until ctx ends, saves the positions and returns nil. It is called once. It calls
// settle when events that it has emitted are to be safe: before a position behind them is
// saved, and within two seconds.
func (s *Sources) Run(ctx context.Context, emit Emit, settle func()) error {
	if len(s.logs) == 0 {
		emitOthers(emit, "no log is configured")
		settle()
		return nil
	}
	s.unreported.Store(int64(len(s.logs)))
	var g errgroup.Group
	for _, l := range s.logs {
		l.emit, l.settle = emit, settle
		l.firstReported = func() {
			if s.unreported.Add(-1) == 0 {
				emitOthers(emit, "this log is not configured")
				settle()
			}
		}
		g.Go(func() error { l.run(ctx); return nil })
	}
	return g.Wait()
}

// emitOthers reports the state of all logs that do not report their own.
func emitOthers(emit Emit, reason string) {
	emit(hostfs.Stamped(event.Event{Kind: event.Source, Source: "collector", SourceUp: &event.SourceData{Stem: event.LogStem, Reason: reason}}))
}
