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

// Config configures a Reader. The zero Config reads new lines of /dev/kmsg.
type Config struct {
	// Path is the device; "" means /dev/kmsg.
	Path string
	// Position is where an earlier reader stopped; if empty, Lookback decides.
	Position logs.Position
	// Lookback is how far back to begin, at most to the boot; 0: new lines only.
	Lookback time.Duration
	// Status is called with nil once the log is open and old records are skipped: Position then
	// returns where reading continues. May be nil. An error that ends reading is returned by Run
	// instead.
	Status func(error)
}

const (
	// bufferSize holds any record: the kernel's own limit is 8 KiB before 6.6
	// (CONSOLE_EXT_LOG_MAX) and 2 KiB since (PRINTK_MESSAGE_MAX).
	bufferSize = 8 << 10
	// maxBuffer limits the growth of the buffer, for a kernel with a larger limit.
	maxBuffer = 64 << 10
)

// Reader reads the kernel's log. Make one with New.
type Reader struct {
	cfg    Config
	boot   string // the boot's random ID; "" if it can't be read
	open   func(context.Context, string) (device, error)
	buffer int // size of the read buffer

	mu   sync.Mutex
	pos  position
	have bool // pos is set
}

// New returns a Reader that has not opened anything yet.
func New(cfg Config) *Reader {
	if cfg.Path == "" {
		cfg.Path = "/dev/kmsg"
	}
	return &Reader{cfg: cfg, boot: hostfs.BootID(), open: openDevice, buffer: bufferSize}
}

// Position returns how far the log was handed over; at first, the Position given to New. It is
// safe for concurrent use.
func (r *Reader) Position() logs.Position {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.have {
		return r.cfg.Position
	}
	return r.pos.text()
}

// Run hands the log over until ctx ends, and then returns nil. It returns the error of handle, or
// why the device can't be opened (it wraps fs.ErrNotExist, fs.ErrPermission) or read. handle is
// called from the calling goroutine; if it is slow, the kernel may overwrite records.
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
			// Overrun: the next record's number shows how many were lost.
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
