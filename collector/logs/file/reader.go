package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/logs"
)

// Config configures a Reader. Path is mandatory.
type Config struct {
	// Path is the file, which need not exist yet; links are followed.
	Path string
	// Root is where the host's file system is mounted, for absolute links as well; "" means "/".
	Root string
	// Format defines where the time and the text are in a line.
	Format Format
	// Skip are texts; lines that contain one are skipped (node-problem-detector's skipList).
	Skip []string
	// Position is where an earlier reader stopped; if empty, Lookback decides.
	Position logs.Position
	// Lookback is how far back to begin, also in rotated files; 0: new lines only. It needs times in lines.
	Lookback time.Duration
	// Status is called with nil when the file can be read, and with the error when it can't,
	// possibly several times with the same one; reading continues as soon as it can. It is called
	// from Run's goroutine, or from another one while that hangs, and may be nil.
	Status func(error)
	// Log receives log messages; may be nil.
	Log *slog.Logger
}

const (
	// maxLine is the longest line in bytes, as of container runtimes; longer ones are cut.
	maxLine = 16 << 10
	// partialAfter is how long a last line waits for its line end before it is handed over without
	// one: its writer has stopped within a line.
	partialAfter = 5 * time.Second
	// pollEvery is how often to check without a notification: the latency without inotify.
	pollEvery = 2 * time.Second
	// goneFor is how long a deleted file is kept open in case its writer goes on, and how long a
	// path may lead nowhere during a rotation before that is reported.
	goneFor = 10 * time.Second
	// hangsAfter is how long a look at the file may make no progress before that is reported, at
	// most twice as long: its disk or file server does not answer.
	hangsAfter = 10 * time.Second
)

// Reader follows a file. Make one with New.
type Reader struct {
	cfg  Config
	dec  *Parser
	tree tree

	// Copies of the constants above; tests change them.
	maxLine                                      int
	partialAfter, pollEvery, goneFor, hangsAfter time.Duration

	mu   sync.Mutex
	pos  position
	head []byte // of the file that pos is in
	have bool   // pos is set
}

// New returns a Reader that has not opened anything yet, or an error if cfg is invalid.
func New(cfg Config) (*Reader, error) {
	if cfg.Format.Location == nil {
		cfg.Format.Location = hostZone(cfg.Root)
	}
	dec, err := NewParser(cfg.Format, cfg.Skip)
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
		cfg: cfg, dec: dec, tree: tree{hostfs.New(cfg.Root)},
		maxLine: maxLine, partialAfter: partialAfter, pollEvery: pollEvery, goneFor: goneFor, hangsAfter: hangsAfter,
	}, nil
}

// Position returns how far the file was handed over; at first, the Position given to New. It is
// safe for concurrent use.
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

// setFresh records that there is no file.
func (r *Reader) setFresh(known knownList, lines uint64) {
	r.mu.Lock()
	r.pos, r.have = position{Fresh: true, Known: known.positions(), Lines: lines}, true
	r.mu.Unlock()
}

// setPosition records how far t was handed over, and the number of lines.
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

// Run hands lines over until ctx ends, and then returns nil, or the error of handle. handle is
// called from the calling goroutine. Run waits for a file that is missing or can't be read.
func (r *Reader) Run(ctx context.Context, handle func(logs.Item) error) error {
	s := &follower{r: r, handle: handle, start: r.cfg.Position}
	defer s.close()
	w := newWatch(r.cfg.Path, r.cfg.Log)
	defer w.close()
	ended := make(chan struct{})
	defer close(ended)
	go s.reportHangs(ended)
	timer := time.NewTimer(r.pollEvery)
	defer timer.Stop()
	for {
		s.advance(true)
		// Watch before looking, so that no change falls in between.
		w.follow(s.names())
		if err := s.look(ctx); err != nil {
			return err
		}
		if w.follow(s.names()) {
			continue
		}
		s.advance(false)
		timer.Reset(s.pause())
		if !w.wait(ctx, timer.C) {
			return nil
		}
	}
}

// Once hands over the existing lines, including rotated files and an unfinished last line. It returns
// nil, the error of handle or of ctx, or why the file can't be read, also if no line has a time.
// Use it instead of Run.
func (r *Reader) Once(ctx context.Context, handle func(logs.Item) error) error {
	var last error
	status := r.cfg.Status
	r.cfg.Status = func(err error) { last = err; status(err) }
	s := &follower{r: r, handle: handle, start: r.cfg.Position}
	defer s.close()
	if err := s.look(ctx); err != nil {
		return err
	}
	for s.cur != nil && s.cur.packed != nil && errors.Is(s.failed, io.ErrUnexpectedEOF) {
		// Don't wait for its end.
		if err := s.finish(ctx); err != nil {
			return err
		}
		if err := s.look(ctx); err != nil {
			return err
		}
	}
	if s.cur != nil {
		if err := s.hand(time.Now(), true); err != nil {
			return err
		}
	}
	if last != nil {
		return fmt.Errorf("log file: %w", last)
	}
	if err := ctx.Err(); err != nil || s.parsed > 0 || s.unparsed == 0 || r.dec.timestamp == nil {
		return err
	}
	return fmt.Errorf("log file %s: %d lines, none with a time in the format %q", r.cfg.Path, s.unparsed, r.cfg.Format.TimestampFormat)
}
