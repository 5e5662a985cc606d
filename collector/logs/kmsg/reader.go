package kmsg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/logs"
)

// Config says what to read. The zero Config reads new lines of /dev/kmsg.
type Config struct {
	// Path is the device; "": /dev/kmsg.
	Path string
	// Position is where an earlier reader was; "": Lookback decides.
	Position logs.Position
	// Lookback is how far back to begin, at most to the boot; 0: new lines only.
	Lookback time.Duration
	// Status is called with nil once the log is open and what was to be passed by
	// is: Position then says where reading goes on. nil: nobody is reported. An error
	// that ends reading is Run's.
	Status func(error)
}

const (
	// bufferSize holds any record: the kernel's own limit is 8 KiB before 6.6
	// (CONSOLE_EXT_LOG_MAX) and 2 KiB since (PRINTK_MESSAGE_MAX).
	bufferSize = 8 << 10
	// maxBuffer is where growing for a kernel with a larger limit ends.
	maxBuffer = 64 << 10
)

// Reader reads the kernel's log. Make one with New.
type Reader struct {
	cfg    Config
	boot   string // the boot's random ID; "": it can't be read
	open   func(context.Context, string) (device, error)
	buffer int // size of the read buffer

	mu   sync.Mutex
	pos  position
	have bool // pos is set
}

// New returns a Reader that has opened nothing.
func New(cfg Config) *Reader {
	if cfg.Path == "" {
		cfg.Path = "/dev/kmsg"
	}
	return &Reader{cfg: cfg, boot: hostfs.BootID(), open: openDevice, buffer: bufferSize}
}

// Position returns up to where the log was handed over; at first, what New was
// given. It is safe for concurrent use.
func (r *Reader) Position() logs.Position {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.have {
		return r.cfg.Position
	}
	return r.pos.text()
}

// Run hands the log over until ctx ends, and then returns nil. It returns the
// error of handle, or why the device can't be opened (it wraps fs.ErrNotExist,
// fs.ErrPermission) or read. handle is called from the calling goroutine; while
// it takes its time, the kernel may write over records.
func (r *Reader) Run(ctx context.Context, handle func(logs.Item) error) error {
	if r.boot == "" {
		return errors.New("the ID of this boot can't be read")
	}
	dev, err := r.open(ctx, r.cfg.Path)
	if err != nil {
		return err
	}
	defer dev.close() //nolint:errcheck // it was only read
	s := &stream{
		r: r, dev: dev, handle: handle, buf: make([]byte, r.buffer),
		clock: hostfs.NewClock(), offset: hostfs.BootTime() - hostfs.Monotonic(),
	}
	if err := s.start(); err != nil {
		return err
	}
	return s.run(ctx)
}

func (r *Reader) setPosition(p position) {
	r.mu.Lock()
	r.pos, r.have = p, true
	r.mu.Unlock()
}

// run reads until ctx ends.
func (s *stream) run(ctx context.Context) error {
	for ctx.Err() == nil {
		n, err := s.dev.read(s.buf)
		var handled error
		switch {
		case err == nil && n > 0:
			handled = s.record(s.buf[:n])
		case errors.Is(err, unix.EAGAIN):
			if handled = s.atEnd(); handled == nil {
				err = s.dev.wait(ctx)
			}
			s.waited = true
		case errors.Is(err, unix.EINVAL):
			handled, err = s.tooLong(), nil
		case errors.Is(err, unix.EPIPE), errors.Is(err, unix.EINTR):
			// Overrun: the next record's number reports how many are gone.
			err = nil
		case err == nil:
			err = io.ErrUnexpectedEOF // kmsg has no end
		}
		if handled != nil {
			return handled
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", s.r.cfg.Path, err)
		}
	}
	return nil
}
