package file

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/kernosis/kernosis/collector/logs"
)

// Config says what to read. Path is mandatory.
type Config struct {
	// Path is the file, which need not exist yet; links are followed.
	Path string
	// Root is where the host's file system is; "": "/". Absolute links below it
	// lead below it.
	Root string
	// Format says where time and text are in a line.
	Format Format
	// Skip are texts; a line that contains one is passed by (skipList of
	// node-problem-detector).
	Skip []string
	// Position is where an earlier reader was; "": Lookback decides.
	Position logs.Position
	// Lookback is how far back to begin, in rotated files as well; 0: new lines
	// only. It needs a Format with times.
	Lookback time.Duration
	// Status is called with nil when the file can be read, and with the reason
	// when it can't, also several times with the same; reading goes on when it can
	// again. It is called from Run's goroutine; nil: nobody is reported.
	Status func(error)
	// Log takes what is worth a note; nil: nothing does.
	Log *slog.Logger
}

const (
	// maxLine is the longest line in bytes; longer ones are cut. Container runtimes cut
	// theirs at as much.
	maxLine = 16 << 10
	// partialAfter is how long a last line waits for its line end before it is handed
	// over without: a writer that is slower has stopped amid a line.
	partialAfter = 5 * time.Second
	// pollEvery is how often to look without a notification of a change: the latency
	// where there is no inotify.
	pollEvery = 2 * time.Second
	// goneFor is how long a file without a path is kept open, should its writer
	// go on, and how long a path may lead nowhere during a rotation before that
	// is reported.
	goneFor = 10 * time.Second
)

// Reader follows a file. Make one with New.
type Reader struct {
	cfg  Config
	dec  *decoder
	tree tree

	// The constants above, or a test's.
	maxLine                          int
	partialAfter, pollEvery, goneFor time.Duration

	mu   sync.Mutex
	pos  position
	head []byte // of the file that pos is in
	have bool   // pos is set
}

// New returns a Reader that has opened nothing, or what is wrong with cfg.
func New(cfg Config) (*Reader, error) {
	if cfg.Format.Location == nil {
		cfg.Format.Location = hostZone(cfg.Root)
	}
	dec, err := newDecoder(cfg.Format, cfg.Skip)
	errs := []error{err}
	if cfg.Path == "" {
		errs = append(errs, errors.New("path is missing"))
	}
	if cfg.Lookback > 0 && cfg.Format.Timestamp == "" && !cfg.Format.Kernel {
		errs = append(errs, errors.New("lookback needs a timestamp expression"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("log file %s: %w", cfg.Path, err)
	}
	if cfg.Status == nil {
		cfg.Status = func(error) {}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Reader{
		cfg: cfg, dec: dec, tree: newTree(cfg.Root),
		maxLine: maxLine, partialAfter: partialAfter, pollEvery: pollEvery, goneFor: goneFor,
	}, nil
}

// Position returns up to where the file was handed over; at first, what New was
// given. It is safe for concurrent use.
func (r *Reader) Position() logs.Position {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.have {
		return r.cfg.Position
	}
	p := r.pos
	if p.Offset > 0 {
		p.Head = int(min(int64(len(r.head)), p.Offset))
		p.Sum = checksum(r.head[:p.Head])
	}
	return p.text()
}

// setFresh says that there is no file.
func (r *Reader) setFresh(known knownList, lines uint64) {
	r.mu.Lock()
	r.pos, r.have = position{Fresh: true, Known: known.positions(), Lines: lines}, true
	r.mu.Unlock()
}

// setPosition says how far t was handed over, and how many lines were.
func (r *Reader) setPosition(t *tail, known knownList, lines uint64) {
	p := position{Lines: lines, Dev: t.stat.dev, Ino: t.stat.ino, Offset: t.offset, Cutting: t.lines.cutting, Cut: t.lines.cut}
	if k := r.dec.kernel; k != nil {
		p.Stamp = k.passed.Microseconds()
	}
	if t.offset == 0 {
		p.Known = known.positions()
	}
	r.mu.Lock()
	r.pos, r.head, r.have = p, t.head, true
	r.mu.Unlock()
}

// Run hands lines over until ctx ends, and then returns nil, or the error of
// handle. It is called from the calling goroutine. A file that is missing or
// can't be read is waited for.
func (r *Reader) Run(ctx context.Context, handle func(logs.Item) error) error {
	s := &follower{r: r, handle: handle, start: r.cfg.Position}
	defer s.close()
	w := newWatch(r.cfg.Path, r.cfg.Log)
	defer w.close()
	timer := time.NewTimer(r.pollEvery)
	defer timer.Stop()
	for {
		// Watched first and looked at then, nothing falls in between.
		w.follow(s.names())
		if err := s.look(ctx); err != nil {
			return err
		}
		if w.follow(s.names()) {
			continue
		}
		timer.Reset(s.pause())
		if !w.wait(ctx, timer.C) {
			return nil
		}
	}
}
