package logsource

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kernosis/kernosis/collector/bounded"
	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/logpattern"
	"github.com/kernosis/kernosis/collector/logs"
	"github.com/kernosis/kernosis/collector/logs/crash"
	"github.com/kernosis/kernosis/collector/logs/file"
	"github.com/kernosis/kernosis/collector/logs/journald"
	"github.com/kernosis/kernosis/collector/logs/kmsg"
)

const (
	// firstPause and lastPause are how long to wait before restarting a reader after it ended: the
	// first time and, doubled each time until one has read something, at most.
	firstPause = time.Second
	lastPause  = time.Minute
	// tickEvery is how often to report losses and to check positions.
	tickEvery = time.Second
	// saveEvents is how many events may be reported again after a kill; for all logs together, a
	// fraction of what the engine remembers.
	saveEvents = 64
	// saveIdle is how often the position is saved while no line matches.
	saveIdle = 10 * time.Second
)

// source is one log. The fields below mu are guarded by it.
type source struct {
	cfg           Config
	o             Options
	stem          string
	patterns      *atomic.Pointer[logpattern.Set]
	emit          Emit
	settle        func()
	firstReported func() // called when it has reported its state for the first time
	now           func() (wall time.Time, boot time.Duration)
	first         time.Duration // wait before the first reader; zero in tests
	pause         time.Duration // firstPause, except in tests
	open          func(*source, logs.Position, func(error)) (reader, error)
	saving        bounded.Calls // writes of the position

	mu       sync.Mutex
	reader   reader // nil before the first one
	streams  streams
	stats    Stats
	saved    saved
	reported bool      // it has reported its state
	why      string    // why it is down; "" if it is up
	items    uint64    // lines and losses handled
	lastTick uint64    // items at the last tick
	events   int       // since the position was saved
	wantSave bool      // save the position before the next line
	earliest time.Time // wall clock time of the first lines to report; zero if it must be computed

	unreported     map[logs.Reason]uint64 // lines lost since lossesReported
	lossesReported time.Time

	hits logpattern.Hits
	ev   event.Event
	data event.LogData

	held    []held      // lines to be reported in a moment, at most saveEvents
	release *time.Timer // fires when the first of them is due
}

func newSource(c Config, o Options, patterns *atomic.Pointer[logpattern.Set]) *source {
	l := &source{
		cfg: c, o: o, stem: event.NamedStem(event.LogStem, c.Name), patterns: patterns,
		settle: func() {}, now: new(hostfs.Timekeeper).Now, pause: firstPause, open: openReader,
	}
	if c.Plugin != File {
		l.first = holdFor // so that events which probes queued while the agent was down come first, too
	}
	l.o.Log = o.Log.With("log", c.Name)
	l.stats = Stats{Name: c.Name, Lost: map[logs.Reason]Lost{}}
	l.unreported = map[logs.Reason]uint64{}
	l.streams = newStreams(&l.cfg)
	return l
}

// run reads until ctx ends.
func (l *source) run(ctx context.Context) {
	var ticking sync.WaitGroup
	ticking.Go(func() { l.tick(ctx) })
	defer ticking.Wait()
	defer l.end()
	position := l.load()
	select {
	case <-ctx.Done():
	case <-time.After(l.first):
	}
	items := uint64(0)
	for pause := l.pause; ; pause = min(2*pause, lastPause) {
		began := time.Now()
		err := l.read(ctx, position)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = errors.New("reading has ended")
		}
		l.reportState(err)
		l.mu.Lock()
		if l.reader != nil {
			position = l.reader.Position()
		}
		if l.items > items || time.Since(began) > lastPause {
			pause = l.pause
		}
		items = l.items
		l.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// read runs one reader.
func (l *source) read(ctx context.Context, position logs.Position) error {
	r, err := l.open(l, position, l.reportState)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.reader = r
	l.mu.Unlock()
	return r.Run(ctx, l.handle)
}

// reportState reports changes of whether the log can be read. It saves the position first, so that
// later lines are not missed even if the agent is killed.
func (l *source) reportState(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	why := ""
	if err != nil {
		why = display.Safe(fmt.Sprint(err), 500)
	}
	if l.reported && why == l.why {
		return
	}
	l.save()
	if err == nil {
		l.o.Log.Info("reading log", "plugin", l.cfg.Plugin, "path", l.cfg.Path)
	} else {
		l.o.Log.Warn("can't read log", "plugin", l.cfg.Plugin, "error", err)
	}
	first := !l.reported
	l.reported, l.why = true, why
	l.emit(hostfs.Stamped(event.Event{Kind: event.Source, Source: l.stem, SourceUp: &event.SourceData{Stem: l.stem, Kernel: l.cfg.hasKernel(), Up: err == nil, Reason: why}}))
	l.settle()
	if first {
		l.firstReported()
	}
}

// tick reports losses and saves positions while no lines come.
func (l *source) tick(ctx context.Context) {
	ticker := time.NewTicker(hostfs.UntilBeat(tickEvery))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			ticker.Reset(hostfs.UntilBeat(tickEvery))
			l.ticked(time.Now())
		}
	}
}

func (l *source) ticked(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.earliest = time.Time{} // the clock may have been set
	l.emitLosses(now)
	l.settle()
	idle := l.items == l.lastTick
	l.lastTick = l.items
	if l.events == 0 && now.Sub(l.saved.at) < saveIdle || len(l.held) > 0 {
		return
	}
	// The reader advances after handle: a position is exact only between two lines.
	if l.wantSave = !idle; idle {
		l.save()
	}
}

// end saves the position for the last time. The reader has ended.
func (l *source) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.save()
}

// reader is implemented by the packages below collector/logs.
type reader interface {
	Run(ctx context.Context, handle func(logs.Item) error) error
	Position() logs.Position
}

// openReader returns the reader of a log.
func openReader(l *source, position logs.Position, status func(error)) (reader, error) {
	c := &l.cfg
	lookback := thisBoot(c.Lookback, hostfs.BootTime())
	switch c.Plugin {
	case KMsg:
		return kmsg.New(kmsg.Config{
			Path: KMsgPath(l.o.HostRoot, c.Path), Position: position, Lookback: lookback, Status: status,
		}), nil
	case Crash:
		return crash.New(crash.Config{Root: l.o.HostRoot, Position: position, Lookback: c.Lookback, Status: status, Log: l.o.Log}), nil
	case Journald:
		return journald.New(journald.Config{
			Root: l.o.HostRoot, Directory: c.Path, Filter: journald.Filter{Identifiers: c.Identifiers},
			Position: position, Lookback: lookback, Status: status, Log: l.o.Log,
		})
	default:
		return file.New(file.Config{
			Path: c.Path, Root: l.o.HostRoot, Format: c.Format, Skip: c.Skip,
			Position: position, Lookback: lookback, Status: status, Log: l.o.Log,
		})
	}
}

// thisBoot limits a lookback to this boot.
func thisBoot(lookback, uptime time.Duration) time.Duration { return max(0, min(lookback, uptime)) }

// KMsgPath returns the device below the host's root, else the container's own, of the same kernel.
func KMsgPath(root, path string) string {
	if path == "" {
		path = "/dev/kmsg"
	}
	if root == "" {
		return path
	}
	host := filepath.Join(root, path)
	if _, err := os.Stat(host); errors.Is(err, fs.ErrNotExist) {
		return path
	}
	return host
}
