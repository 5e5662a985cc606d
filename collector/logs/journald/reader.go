package journald

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/logs"
)

// Config says what to read. The zero Config reads new entries of this machine's
// journal.
type Config struct {
	// Root is where the host's file system is, with its journalctl and its
	// journal; "": "/". Another one takes CAP_SYS_CHROOT.
	Root string
	// Directory is the folder with the journal's files, below Root; "": those of
	// journald.
	Directory string
	// Filter says which entries are wanted.
	Filter Filter
	// Position is where an earlier reader was; "": Lookback decides.
	Position logs.Position
	// Lookback is how far back to begin, over boots; 0: new entries only.
	Lookback time.Duration
	// Status is called with nil when the journal is being read, and with the
	// reason when it can't be, also several times with the same; reading goes on when
	// it can again. It is called from Run's goroutine; nil: nobody is reported.
	Status func(error)
	// Log takes what is worth a note; nil: nothing does.
	Log *slog.Logger
}

const (
	// maxMessage is the longest text in bytes, as for files. Longer ones are cut.
	maxMessage = 16 << 10

	// firstPause and lastPause are how long after its end journalctl is started
	// again: at first and, doubled each time, at most.
	firstPause = time.Second
	lastPause  = time.Minute
	// settled is how long it has to run to be taken to work, while there is
	// nothing to read.
	settled = 2 * time.Second
)

// Reader reads a journal. Make one with New.
type Reader struct {
	cfg     Config
	pause   time.Duration                // firstPause, or a test's
	command func(string) (string, error) // findCommand, or a test's

	mu     sync.Mutex
	begun  position // where Run has begun; its filter is empty before
	cursor []byte   // of the last entry that was handed over; nil: none yet
}

// New returns a Reader that has started nothing, or what is wrong with cfg.
func New(cfg Config) (*Reader, error) {
	filter, err := cfg.Filter.normal()
	errs := []error{err}
	if cfg.Directory != "" && !filepath.IsAbs(cfg.Directory) {
		errs = append(errs, fmt.Errorf("directory %q: want an absolute path", cfg.Directory))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	cfg.Filter = filter
	if cfg.Root != "" {
		if cfg.Root = filepath.Clean(cfg.Root); cfg.Root == "/" {
			cfg.Root = ""
		}
	}
	if cfg.Status == nil {
		cfg.Status = func(error) {}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Reader{cfg: cfg, pause: firstPause, command: findCommand}, nil
}

// Position returns up to where the journal was handed over; at first, what New
// was given. It is safe for concurrent use.
func (r *Reader) Position() logs.Position {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.begun.filter == "" {
		return r.cfg.Position
	}
	p := r.begun
	if r.cursor != nil {
		p.cursor = string(r.cursor)
	}
	return p.text()
}

func (r *Reader) setCursor(cursor []byte) {
	r.mu.Lock()
	r.cursor = append(r.cursor[:0], cursor...)
	r.mu.Unlock()
}

// Run hands entries over until ctx ends, and then returns nil, or the error of
// handle. handle is called from the calling goroutine; while it takes its time,
// journalctl waits. A journalctl that is missing or ends is reported and started
// again.
func (r *Reader) Run(ctx context.Context, handle func(logs.Item) error) error {
	s := &session{r: r, handle: handle, boot: bootID(), names: map[string]string{}}
	if err := s.begin(); err != nil {
		return err
	}
	for pause := r.pause; ; pause = min(2*pause, lastPause) {
		began := time.Now()
		err := s.follow(ctx)
		if s.handleErr != nil {
			return s.handleErr
		}
		if ended(ctx) {
			return nil
		}
		s.r.cfg.Status(err)
		if s.entries > 0 || time.Since(began) > lastPause {
			pause = r.pause
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

func ended(ctx context.Context) bool { return ctx.Err() != nil }

// args returns what journalctl is to be called with.
func (s *session) args() []string {
	args := []string{
		"--quiet", "--no-pager", "--follow", "--no-tail", "--merge",
		"--output=export", "--output-fields=" + strings.Join(fieldNames(), ","),
	}
	machine := ""
	if s.r.cfg.Directory != "" {
		args = append(args, "--directory="+s.r.cfg.Directory)
	} else {
		machine = readMachineID(s.r.cfg.Root)
	}
	if s.cursor != nil {
		args = append(args, "--cursor="+string(s.cursor))
	} else {
		args = append(args, fmt.Sprintf("--since=@%d.%06d", s.since/1e6, s.since%1e6))
	}
	return append(args, s.r.cfg.Filter.matches(machine)...)
}

// bootID returns the ID of this boot as journald writes it; "": it can't be read.
func bootID() string { return strings.ReplaceAll(hostfs.BootID(), "-", "") }
