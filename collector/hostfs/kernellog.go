package hostfs

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// ErrKernelRecord is returned for anything that is not a record of /dev/kmsg.
var ErrKernelRecord = errors.New("not a kmsg record")

// KernelRecord is one record of /dev/kmsg. Its slices alias the parsed bytes or the KernelRecord
// itself, which reuses them at the next parse.
type KernelRecord struct {
	Seq uint64
	// Time is the kernel's time stamp, from the scheduler's clock.
	Time time.Duration
	// Level is 0 (emerg) to 7 (debug).
	Level int
	// Facility is 0 for the kernel only.
	Facility int
	// Fragment: the text continues an earlier record of the same context (printk with
	// KERN_CONT, interrupted by others).
	Fragment bool
	// Subsystem and Device come from dev_printk: "block" and "b8:0", "c1:3",
	// "n2", "+pci:0000:00:1f.2".
	Subsystem, Device []byte
	// Text is unescaped except for control characters.
	Text []byte

	unescaped []byte
}

// ParseKernelRecord reads the record in b, as one read of /dev/kmsg returns it:
//
//	prefix,seq,timestamp,flags[,more];text
//	 KEY=value
//
// It sets every field of r. If only the sequence number can be parsed, Seq is set, and seqOK is
// true besides the error. It does not allocate once r has held an escaped text as long.
func ParseKernelRecord(b []byte, r *KernelRecord) (seqOK bool, err error) {
	*r = KernelRecord{unescaped: r.unescaped}
	prefix, b, ok := recordNumber(b)
	if !ok || prefix > maxRecordPrefix {
		return false, ErrKernelRecord
	}
	r.Level, r.Facility = int(prefix&7), int(prefix>>3)
	if r.Seq, b, ok = recordNumber(b); !ok {
		return false, ErrKernelRecord
	}
	stamp, b, ok := recordNumber(b)
	if !ok || stamp > maxRecordStamp {
		return true, ErrKernelRecord
	}
	r.Time = time.Duration(stamp) * time.Microsecond
	header, text, ok := bytes.Cut(b, []byte{';'})
	if !ok {
		return true, ErrKernelRecord
	}
	flags, _, _ := bytes.Cut(header, []byte{','}) // later kernels add fields after them
	// 'c' is a fragment; kernels before 5.0 used '+' for the following ones.
	r.Fragment = bytes.ContainsAny(flags, "c+")
	line, rest, _ := bytes.Cut(text, []byte{'\n'})
	r.Text = r.unescape(line)
	r.dictionary(rest)
	return true, nil
}

const (
	// maxRecordPrefix: the kernel uses eight bits for the facility.
	maxRecordPrefix = 0xff<<3 | 7
	// maxRecordStamp is the maximum time.Duration, in µs.
	maxRecordStamp = uint64(1<<63-1) / 1000
)

// recordNumber parses the decimal number before the next comma.
func recordNumber(b []byte) (n uint64, rest []byte, ok bool) {
	digits, rest, ok := bytes.Cut(b, []byte{','})
	n, err := strconv.ParseUint(string(digits), 10, 64)
	return n, rest, ok && err == nil
}

// dictionary parses the lines after the text.
func (r *KernelRecord) dictionary(b []byte) {
	for len(b) > 0 {
		var line []byte
		line, b, _ = bytes.Cut(b, []byte{'\n'})
		if value, ok := bytes.CutPrefix(line, []byte(" SUBSYSTEM=")); ok {
			r.Subsystem = value
		} else if value, ok := bytes.CutPrefix(line, []byte(" DEVICE=")); ok {
			r.Device = value
		}
	}
}

// unescape decodes \xNN, unless it is a control character.
func (r *KernelRecord) unescape(b []byte) []byte {
	next := bytes.IndexByte(b, '\\')
	if next < 0 {
		return b
	}
	out := r.unescaped[:0]
	for next >= 0 {
		out = append(out, b[:next]...)
		b = b[next:]
		var c [1]byte
		if len(b) >= 4 && b[1] == 'x' {
			_, _ = hex.Decode(c[:], b[2:4]) // 0, a control character, if it is not hexadecimal
		}
		if c[0] >= ' ' && c[0] != 0x7f {
			out = append(out, c[0])
			b = b[4:]
		} else {
			out = append(out, b[0])
			b = b[1:]
		}
		next = bytes.IndexByte(b, '\\')
	}
	r.unescaped = append(out, b...)
	return r.unescaped
}

// maxKernelRecord is CONSOLE_EXT_LOG_MAX, which bounds what one read returns.
const maxKernelRecord = 8 << 10

// KernelLog calls fn with each record that the kernel's log contains, oldest first, until fn
// returns false. It does not wait for more. lost reports that records were overwritten while it
// read, or could not be parsed. It needs CAP_SYSLOG if dmesg_restrict is set.
func (f FS) KernelLog(ctx context.Context, fn func(r *KernelRecord) bool) (lost bool, err error) {
	p := f.Path("/dev/kmsg")
	fd, err := unix.Open(p, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, &os.PathError{Op: "open", Path: p, Err: err}
	}
	defer func() { _ = unix.Close(fd) }() // only read
	buf, record := make([]byte, maxKernelRecord), KernelRecord{}
	for ctx.Err() == nil {
		n, err := unix.Read(fd, buf)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EPIPE), errors.Is(err, unix.EINVAL): // overwritten; too long
			lost = true
		case errors.Is(err, unix.EAGAIN), err == nil && n == 0:
			return lost, nil
		case err != nil:
			return lost, &os.PathError{Op: "read", Path: p, Err: err}
		default:
			if _, err := ParseKernelRecord(buf[:n], &record); err != nil {
				lost = true
			} else if !fn(&record) {
				return lost, nil
			}
		}
	}
	return lost, context.Cause(ctx)
}

// Age returns how long ago the record was written. Its time stamp is from the scheduler's clock,
// which follows CLOCK_MONOTONIC with a drift of seconds a month.
func (r *KernelRecord) Age() time.Duration {
	return Monotonic() - r.Time
}
