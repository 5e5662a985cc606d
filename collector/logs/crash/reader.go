package crash

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kernosis/kernosis/collector/bounded"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/logs"
)

// Config configures a Reader. The zero Config reads the records of this machine that were written
// since it booted.
type Config struct {
	// Root is where the host's file system is mounted; "" means "/".
	Root string
	// Position is where an earlier reader stopped; if empty, Lookback decides.
	Position logs.Position
	// Lookback is how long before this boot records may have been written.
	Lookback time.Duration
	// Status is called after each look at the folders, with the error if one of them or a file can't
	// be read; the others are read. May be nil.
	Status func(error)
	// Log receives log messages; may be nil.
	Log *slog.Logger
}

const (
	// lookEvery is how often to look for new records: pstore may be mounted late.
	lookEvery = time.Minute
	// hangsAfter is how long a look may take before that is reported.
	hangsAfter = 10 * time.Second
	// maxSeen is how many panics are remembered: more than there are files to read.
	maxSeen = 4 * maxFiles
)

// Reader reads records of panics. Make one with New.
type Reader struct {
	cfg    Config
	host   hostfs.FS
	looks  bounded.Calls
	before []file // that were read at the last look

	mu  sync.Mutex
	pos position // zero before the first one
}

// New returns a Reader that has not opened anything yet.
func New(cfg Config) *Reader {
	if cfg.Status == nil {
		cfg.Status = func(error) {}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Reader{cfg: cfg, host: hostfs.New(cfg.Root)}
}

// position is what was handed over.
type position struct {
	since time.Time // older records are not read
	seen  []string  // sums of panics and of unreadable files, the latest last
}

// text returns the position as it is saved: seconds since 1970, and sums.
func (p position) text() logs.Position {
	return logs.Position(strings.Join(append([]string{strconv.FormatInt(p.since.Unix(), 10)}, p.seen...), " "))
}

// parsePosition returns false for text that is not a Position of this package.
func parsePosition(text logs.Position) (p position, ok bool) {
	words := strings.Fields(string(text))
	if len(words) == 0 {
		return position{}, false
	}
	seconds, err := strconv.ParseInt(words[0], 10, 64)
	if err != nil {
		return position{}, false
	}
	return position{since: time.Unix(seconds, 0), seen: words[1:]}, true
}

// Position returns what was handed over; at first, the Position given to New. It is safe for
// concurrent use.
func (r *Reader) Position() logs.Position {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pos.since.IsZero() {
		return r.cfg.Position
	}
	return r.pos.text()
}

// Run hands records over until ctx ends, and then returns nil, or the error of handle. handle is
// called from the calling goroutine.
func (r *Reader) Run(ctx context.Context, handle func(logs.Item) error) error {
	pos, ok := parsePosition(r.cfg.Position)
	if !ok && r.cfg.Position != "" {
		if err := handle(logs.Item{Loss: &logs.Loss{Reason: logs.BadPosition}}); err != nil {
			return err
		}
	}
	booted := time.Now().Add(-hostfs.BootTime())
	if !ok || pos.since.After(booted) { // it was saved while the clock was ahead
		pos.since = booted.Add(-r.cfg.Lookback)
	}
	r.mu.Lock()
	r.pos = pos
	r.mu.Unlock()
	tick := time.NewTicker(hostfs.UntilBeat(lookEvery))
	defer tick.Stop()
	for {
		if err := r.look(handle); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			tick.Reset(hostfs.UntilBeat(lookEvery))
		}
	}
}

// look hands over the records that are new.
func (r *Reader) look(handle func(logs.Item) error) error {
	since, before := r.pos.since, r.before // find may outlast this call
	found, err := bounded.Do(&r.looks, hangsAfter, func() (look, error) { return find(r.host, since, before), nil })
	if err != nil {
		r.cfg.Status(err)
		return nil //nolint:nilerr // the next look may succeed
	}
	if found.more > 0 && found.parts != nil {
		r.cfg.Log.Warn("too many records of crashes: the oldest are not read", "files", found.more)
	}
	var parts []part
	for _, p := range found.parts {
		if !p.packed {
			parts = append(parts, p)
			continue
		}
		if err := r.once(sum(string(p.text)), func() error {
			r.cfg.Log.Warn("record of a crash could not be decompressed by the kernel", "path", p.path)
			return handle(logs.Item{Loss: &logs.Loss{Reason: logs.Malformed}})
		}); err != nil {
			return err
		}
	}
	for _, rec := range records(parts) {
		lines, id := rec.lines()
		if id == "" {
			continue
		}
		if err := r.once(sum(id), func() error {
			for i := range lines {
				if err := handle(logs.Item{Line: &lines[i]}); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	r.before = found.files
	r.cfg.Status(found.err)
	return nil
}

// once calls f unless it was called for the same sum before.
func (r *Reader) once(sum string, f func() error) error {
	if slices.Contains(r.pos.seen, sum) {
		return nil
	}
	if err := f(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pos.seen = append(r.pos.seen, sum)
	r.pos.seen = r.pos.seen[max(0, len(r.pos.seen)-maxSeen):]
	return nil
}
