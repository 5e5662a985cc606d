package hostfs

import (
	"bytes"
	"errors"
	"time"
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
// true besides the error. It does not allocate once r has held a text with escapes of the same
// length.
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
	for i, c := range b {
		switch {
		case c == ',' && i > 0:
			return n, b[i+1:], true
		case c < '0' || c > '9' || i >= 19: // more would not fit
			return 0, nil, false
		}
		n = n*10 + uint64(c-'0')
	}
	return 0, nil, false
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
		if c, ok := recordEscape(b); ok && c >= ' ' && c != 0x7f {
			out = append(out, c)
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

// recordEscape parses the \xNN at the beginning of b.
func recordEscape(b []byte) (c byte, ok bool) {
	if len(b) < 4 || b[1] != 'x' {
		return 0, false
	}
	high, ok1 := hexDigit(b[2])
	low, ok2 := hexDigit(b[3])
	return high<<4 | low, ok1 && ok2
}

func hexDigit(c byte) (n byte, ok bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10, true
	default:
		return 0, false
	}
}
