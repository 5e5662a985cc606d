package file

import (
	"bytes"
	"time"

	"github.com/kernosis/kernosis/collector/logs"
)

// kernelLines parses the kernel's log as syslog daemons write it:
//
//	Nov 23 22:31:00 node kernel: [  123.456789] md: md0 stopped.
//	2026-11-23T22:31:00.123456+01:00 node kernel: [  123.456789][   T12] md: md0 stopped.
//
// The brackets hold the kernel's time stamp and, with CONFIG_PRINTK_CALLER, the caller of printk.
type kernelLines struct {
	traditional, rfc3339 layout
	// stamp is the time stamp of the latest line. All lines of a record have the same one
	// (record_print_text, kernel/printk/printk.c).
	stamp     time.Duration
	continues bool // the latest line had the same stamp as the one before
	// passed is the stamp of the last line that was handed over; the latest line may be after it.
	passed time.Duration
}

// header returns the time at the beginning of a line, its layout, and the rest of the line.
func (k *kernelLines) header(line []byte) (at []byte, by *layout, rest []byte, ok bool) {
	end := len(time.Stamp)
	by = &k.traditional
	if len(line) > 0 && line[0] >= '0' && line[0] <= '9' {
		end, by = bytes.IndexByte(line, ' '), &k.rfc3339
	}
	if end < 0 || len(line) <= end || line[end] != ' ' {
		return nil, nil, nil, false
	}
	return line[:end], by, line[end+1:], true
}

// ofKernel returns what follows the host name and "kernel: ", or nil for another program's line.
func ofKernel(rest []byte) []byte {
	_, rest, _ = bytes.Cut(rest, []byte{' '})
	text, ok := bytes.CutPrefix(rest, []byte("kernel: "))
	if !ok {
		return nil
	}
	return text
}

// stamped notes the time stamp of a line, and returns what follows it. It returns false if there
// is none: whether the line begins a record is then unknown.
func (k *kernelLines) stamped(text []byte) ([]byte, bool) {
	stamp, rest, ok := bracket(text)
	if !ok {
		return nil, false
	}
	at, ok := microseconds(bytes.TrimLeft(stamp, " "))
	if !ok {
		return nil, false
	}
	k.continues, k.stamp = at == k.stamp, at
	return rest, true
}

// message returns the text that the kernel printed, or false if the time stamp is missing.
func (k *kernelLines) message(text []byte) ([]byte, bool) {
	rest, ok := k.stamped(text)
	if !ok {
		return nil, false
	}
	if caller, behind, ok := bracket(rest); ok {
		if c := bytes.TrimLeft(caller, " "); len(c) > 1 && (c[0] == 'T' || c[0] == 'C') && digits(c[1:]) {
			rest = behind
		}
	}
	rest, _ = bytes.CutPrefix(rest, []byte{' '})
	return logs.EscapeControl(unescapeSyslog(rest)), true
}

// bracket cuts a leading "[…]" off.
func bracket(text []byte) (in, rest []byte, ok bool) {
	if len(text) == 0 || text[0] != '[' {
		return nil, nil, false
	}
	return bytes.Cut(text[1:], []byte{']'})
}

// microseconds parses seconds since boot with six decimals.
func microseconds(text []byte) (time.Duration, bool) {
	whole, part, _ := bytes.Cut(text, []byte{'.'})
	if len(part) != 6 || len(whole) == 0 || len(whole) > 9 || !digits(whole) || !digits(part) {
		return 0, false
	}
	n := int64(0)
	for _, b := range [][]byte{whole, part} {
		for _, c := range b {
			n = 10*n + int64(c-'0')
		}
	}
	return time.Duration(n) * time.Microsecond, true
}

func digits(b []byte) bool {
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// unescapeSyslog restores control characters, which syslog daemons write as "#" and three octal
// digits. It returns text itself if there are none.
func unescapeSyslog(text []byte) []byte {
	var out []byte
	done := 0 // bytes of text that were copied to out
	for i := range text {
		if text[i] != '#' {
			continue
		}
		if c, ok := controlCode(text[i+1:]); ok {
			out = append(append(out, text[done:i]...), c)
			done = i + 4
		}
	}
	if done == 0 {
		return text
	}
	return append(out, text[done:]...)
}

func controlCode(b []byte) (byte, bool) {
	if len(b) < 3 || b[0] < '0' || b[0] > '1' || b[1] < '0' || b[1] > '7' || b[2] < '0' || b[2] > '7' {
		return 0, false
	}
	c := (b[0]-'0')<<6 | (b[1]-'0')<<3 | (b[2] - '0')
	return c, c < ' ' || c == 0x7f
}
