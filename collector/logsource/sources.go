package logsource

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/logpattern"
)

// Options are common to all logs.
type Options struct {
	// StateDir is where positions are saved; if empty, each start begins by Lookback.
	StateDir string
	// HostRoot is where the host's file system is mounted; "" means "/".
	HostRoot string
	// Log receives log messages; may be nil.
	Log *slog.Logger
}

// Emit handles one event, valid during the call. Several goroutines call it.
type Emit func(*event.Event)

// Sources reads all configured logs. Create it with New.
type Sources struct {
	logs       []*source
	patterns   atomic.Pointer[logpattern.Set]
	unreported atomic.Int64 // logs that have not reported their state yet
}

// New returns the sources of the logs, or why the configuration is invalid. It opens nothing.
func New(configs []Config, patterns *logpattern.Set, o Options) (*Sources, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Sources{}
	s.patterns.Store(patterns)
	var errs []error
	if len(configs) > MaxLogs {
		errs = append(errs, fmt.Errorf("%d logs: at most %d are allowed", len(configs), MaxLogs))
	}
	names := make(map[string]bool)
	for i := range configs {
		c := configs[i]
		if err := c.Check().Err(); err != nil {
			errs = append(errs, fmt.Errorf("log %q: %w", c.Name, err))
		}
		if names[c.Name] {
			errs = append(errs, fmt.Errorf("log %q: defined twice", c.Name))
		}
		names[c.Name] = true
		s.logs = append(s.logs, newSource(c, o, &s.patterns))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return s, nil
}

// SetPatterns replaces the patterns from each log's next line on. It is safe for concurrent use.
func (s *Sources) SetPatterns(set *logpattern.Set) { s.patterns.Store(set) }

// Stats returns the counters of each log, as configured. It is safe for concurrent use.
func (s *Sources) Stats() []Stats {
	out := make([]Stats, len(s.logs))
	for i, l := range s.logs {
		l.mu.Lock()
		out[i] = l.stats
		out[i].Lost = maps.Clone(l.stats.Lost)
		l.mu.Unlock()
	}
	return out
}

// Run reads until ctx ends, saves the positions and returns nil. Call it once. It calls settle when the
// emitted events must be stored: before it saves a position after them, and within two seconds.
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
