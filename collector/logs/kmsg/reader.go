package kmsg

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

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
	// Status is called with nil once the log is open and old records are skipped: Position then returns
	// where reading continues. May be nil. Run returns an error that ends reading.
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

	mu  sync.Mutex
	pos position // its boot is empty before the first one
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
	if r.pos.boot == "" {
		return r.cfg.Position
	}
	return r.pos.text()
}

// Run hands the log over until ctx ends, and then returns nil. It returns the error of handle, or
// why the device can't be opened (it wraps fs.ErrNotExist, fs.ErrPermission) or read. handle is
// called from the calling goroutine; if it is slow, the kernel may overwrite records.
func (r *Reader) Run(ctx context.Context, handle func(logs.Item) error) error {
	return r.read(ctx, handle, false)
}

// Once hands over the existing records, and returns nil. It returns the error of handle or of ctx,
// or why the log can't be read. Use it instead of Run.
func (r *Reader) Once(ctx context.Context, handle func(logs.Item) error) error {
	if err := r.read(ctx, handle, true); err != nil {
		return err
	}
	return ctx.Err()
}

func (r *Reader) read(ctx context.Context, handle func(logs.Item) error, once bool) error {
	if r.boot == "" {
		return errors.New("the ID of this boot can't be read")
	}
	dev, err := r.open(ctx, r.cfg.Path)
	if err != nil {
		return err
	}
	defer dev.close() //nolint:errcheck // it was only read
	s := &stream{
		r: r, dev: dev, handle: handle, once: once, buf: make([]byte, r.buffer),
		clock: hostfs.NewClock(), offset: hostfs.BootTime() - hostfs.Monotonic(),
	}
	if err := s.start(); err != nil {
		return err
	}
	return s.run(ctx)
}

// position is how far the log was handed over.
type position struct {
	boot string // the kernel's random boot id
	next uint64 // the first sequence number that was not handed over

	// offset is the difference between CLOCK_BOOTTIME and the clock of the time stamps, as
	// measured on records that arrived while the reader waited for them; 0 if there were none. The two
	// clocks drift apart, and old records don't show how far.
	offset time.Duration
}

// text returns the position as it is saved: "BOOTID 123", or "BOOTID 123 4.5ms". Newer versions
// may add words, which parsePosition ignores.
func (p position) text() logs.Position {
	text := p.boot + " " + strconv.FormatUint(p.next, 10)
	if p.offset != 0 {
		text += " " + p.offset.String()
	}
	return logs.Position(text)
}

// parsePosition returns false for text that is not a Position of this package.
func parsePosition(text logs.Position) (p position, ok bool) {
	boot, rest, _ := strings.Cut(string(text), " ")
	number, rest, _ := strings.Cut(rest, " ")
	clock, _, _ := strings.Cut(rest, " ")
	next, err := strconv.ParseUint(number, 10, 64)
	p = position{boot: boot, next: next}
	if clock != "" && err == nil {
		p.offset, err = time.ParseDuration(clock)
	}
	return p, boot != "" && err == nil
}
