package journald

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kernosis/kernosis/collector/bounded"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/logs"
)

// Config configures a Reader. The zero Config reads new entries of this machine's journal.
type Config struct {
	// Root is where the host's file system is mounted, with its journalctl and its journal; ""
	// means "/". Any other value requires CAP_SYS_CHROOT.
	Root string
	// Directory is the folder of the journal's files, below Root; "" means journald's folders.
	Directory string
	// Filter selects the entries.
	Filter Filter
	// Position is where an earlier reader stopped; if empty, Lookback decides.
	Position logs.Position
	// Lookback is how far back to begin, across boots; 0: new entries only.
	Lookback time.Duration
	// Status is called with nil when the journal is being read, and with an error while its disk does
	// not answer, possibly several times with the same one. It is called from Run's goroutine and may
	// be nil. An error that ends reading is returned by Run instead.
	Status func(error)
	// Log receives log messages; may be nil.
	Log *slog.Logger
}

const (
	// maxMessage is the longest text in bytes, as for files. Longer ones are cut.
	maxMessage = 16 << 10
	// settled is how long journalctl has to run without output to be considered working.
	settled = 2 * time.Second
	// checkEvery is how often to look for a folder that a running journalctl does not watch.
	checkEvery = 10 * time.Second
	// hangsAfter is how long a look at the journal's folders may take.
	hangsAfter = 5 * time.Second
)

// Reader reads a journal. Make one with New.
type Reader struct {
	cfg     Config
	command func(string) (string, error) // findCommand, except in tests
	check   time.Duration                // checkEvery, except in tests
	fs      hostfs.FS
	folders []string // of the journal's files
	looks   bounded.Calls

	mu     sync.Mutex
	begun  position // where Run began; its filter is empty before
	cursor []byte   // of the last entry that was handed over; nil: none yet
}

// New returns a Reader that has not started anything yet, or an error if cfg is invalid.
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
	folders := []string{Folder, memoryFolder}
	if cfg.Directory != "" {
		folders = []string{cfg.Directory}
	}
	return &Reader{cfg: cfg, command: findCommand, folders: folders, check: checkEvery, fs: hostfs.New(cfg.Root)}, nil
}

// Position returns how far the journal was handed over; at first, the Position given to New. It is
// safe for concurrent use.
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

// Run hands entries over until ctx ends, and then returns nil. It returns the error of handle, or why
// journalctl can't be started or has ended; another Reader continues at the Position. handle is called
// from the calling goroutine; while it runs, journalctl waits.
func (r *Reader) Run(ctx context.Context, handle func(logs.Item) error) error {
	s, err := r.begin(handle)
	if err != nil {
		return err
	}
	for {
		err := s.run(ctx)
		switch {
		case s.handleErr != nil:
			return s.handleErr
		case ctx.Err() != nil:
			return nil //nolint:nilerr // it was ended
		case !errors.Is(err, errNewFolder):
			return err
		}
		r.cfg.Log.Info("journalctl is restarted", "reason", err)
	}
}

// Once hands over the existing entries, and returns nil; entries written in the meantime may be
// included. It returns the error of handle or of ctx, or why the journal can't be read, for
// example ErrNoFiles. Use it instead of Run.
func (r *Reader) Once(ctx context.Context, handle func(logs.Item) error) error {
	s, err := r.begin(handle)
	if err != nil {
		return err
	}
	command, err := r.command(r.cfg.Root)
	if err != nil {
		return err
	}
	args := slices.DeleteFunc(s.args(), func(a string) bool { return a == "--follow" || a == "--no-tail" })
	c, err := startChild(ctx, r.cfg.Root, command, args)
	if err != nil {
		return err
	}
	s.first = s.cursor != nil
	err = s.decode(c)
	if errors.Is(err, io.EOF) && s.handleErr == nil {
		<-c.done // it has closed its output: it exits, or is killed with ctx
		err = c.exit
	}
	said := c.stop()
	switch {
	case s.handleErr != nil:
		return s.handleErr
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("read journal: %w", errors.Join(err, said))
	case s.entries == 0:
		if err := r.look(); err != nil {
			return fmt.Errorf("read journal: %w", err)
		}
	}
	return nil
}

// args returns the arguments for journalctl.
func (s *session) args() []string {
	args := []string{
		"--quiet", "--no-pager", "--follow", "--no-tail", "--merge",
		"--output=export", "--output-fields=" + strings.Join(fieldNames(), ","),
	}
	machine := ""
	if s.r.cfg.Directory != "" {
		args = append(args, "--directory="+s.r.cfg.Directory)
	} else {
		machine = readMachineID(s.r.fs)
	}
	if s.cursor != nil {
		args = append(args, "--cursor="+string(s.cursor))
	} else {
		args = append(args, fmt.Sprintf("--since=@%d.%06d", s.since/1e6, s.since%1e6))
	}
	return append(args, s.r.cfg.Filter.matches(machine)...)
}

// maxCursor is longer than any cursor: five numbers of at most 32 digits.
const maxCursor = 256

// position is how far a journal was handed over.
type position struct {
	filter string // checksum of the filter
	cursor string // of the last entry that was handed over; "" if there was none
	since  int64  // without a cursor: where reading began (Unix, µs)
}

// text returns the position as it is saved: "FILTER CURSOR" or "FILTER @TIME".
func (p position) text() logs.Position {
	if p.cursor == "" {
		return logs.Position(p.filter + " @" + strconv.FormatInt(p.since, 10))
	}
	return logs.Position(p.filter + " " + p.cursor)
}

// parsePosition returns false for text that is not a Position of this package.
func parsePosition(text logs.Position) (p position, ok bool) {
	filter, where, _ := strings.Cut(string(text), " ")
	if digits, ok := strings.CutPrefix(where, "@"); ok {
		since, err := strconv.ParseInt(digits, 10, 64)
		return position{filter: filter, since: since}, filter != "" && err == nil && since >= 0
	}
	return position{filter: filter, cursor: where}, filter != "" && isCursor(where)
}

// isCursor reports whether journalctl accepts s as a cursor: names of one letter with hexadecimal
// numbers.
func isCursor(s string) bool {
	if s == "" || len(s) > maxCursor {
		return false
	}
	for part := range strings.SplitSeq(s, ";") {
		if len(part) < 3 || part[0] < 'a' || part[0] > 'z' || part[1] != '=' || strings.Trim(part[2:], "0123456789abcdef") != "" {
			return false
		}
	}
	return true
}
