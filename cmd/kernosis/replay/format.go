package replay

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/logs/journald"
)

// Format is the format of a record.
type Format string

// The formats that can be read.
const (
	// Output of journalctl with -o export and -o json.
	JournalExport Format = "journal-export"
	JournalJSON   Format = "journal-json"

	Journal   Format = "journal"    // entries of the agent: its journal's segments, or the lines of "kernosis run -o json"
	Kmsg      Format = "kmsg"       // records of /dev/kmsg: "6,12,345678,-;text"
	Dmesg     Format = "dmesg"      // "[   12.345678] text", also as dmesg --decode and --raw write it
	DmesgTime Format = "dmesg-time" // dmesg -T: "[Fri Jan  2 15:04:05 2026] text", read as UTC
	// Syslog is a log file: "Nov 23 22:31:00 node app[12]: text", read as UTC, or with an
	// RFC 3339 time.
	Syslog   Format = "syslog"
	DmesgISO Format = "dmesg-iso" // dmesg --time-format iso: "2026-01-02T15:04:05,123456+00:00 text"
	// Filelog is a log file as a filelog monitor of node-problem-detector describes it.
	Filelog Format = "filelog"
	// Plain is any other text, line by line. It is never detected.
	Plain Format = "plain"
)

// Formats returns all formats, in the order in which they are tried.
func Formats() []Format {
	return []Format{JournalExport, JournalJSON, Journal, Kmsg, Dmesg, DmesgTime, Syslog, DmesgISO, Filelog, Plain}
}

// sniffed is how many lines are used to detect the format: a dump may begin with lines
// that a ring buffer or a copy has cut.
const sniffed = 100

// ErrFormat is the error for input of an unknown format.
var ErrFormat = errors.New("format not recognised: no line is a journal entry, a record of /dev/kmsg, a line of dmesg with a time, of a syslog file, or of journalctl -o export or json; --format sets one (plain reads any text), --npd reads a file as a filelog monitor describes it")

// detect returns the most frequent format of the first lines, including the formats of filelog monitors.
func (r *Replay) detect(head []byte) (Format, error) {
	counts := make(map[Format]int)
	n := 0
	for line := range bytes.Lines(head) {
		line = bytes.TrimSuffix(line, []byte{'\n'})
		if len(bytes.TrimSpace(line)) == 0 || line[0] == ' ' {
			continue // continues the previous line in all formats
		}
		if n++; n > sniffed {
			break
		}
		counts[formatOf(line)]++
		if _, err := r.filelog(line); err == nil {
			counts[Filelog]++
		}
	}
	best, most := Format(""), 0
	for _, f := range Formats() {
		if counts[f] > most {
			best, most = f, counts[f]
		}
	}
	if best == "" {
		return "", ErrFormat
	}
	return best, nil
}

func formatOf(line []byte) Format {
	for _, f := range Formats() {
		if f.is(line) {
			return f
		}
	}
	return ""
}

func (f Format) is(line []byte) bool {
	switch f {
	case Journal:
		_, err := parseEntry(line)
		return err == nil
	case JournalExport:
		return bytes.HasPrefix(line, []byte("__CURSOR=")) || bytes.HasPrefix(line, []byte("__REALTIME_TIMESTAMP="))
	case JournalJSON:
		return journald.ParseJSON(line, &journald.Entry{}) == nil
	case Syslog:
		_, err := parseSyslog(line, time.Now()) // any year will do
		return err == nil
	case Plain:
		return false
	}
	_, err := f.parse(line)
	return err == nil
}

type line struct {
	// stamp is the time since boot in formats that count from boot, else since 1970.
	stamp time.Duration
	level int // 0 (emerg) to 7 (debug); -1: the format doesn't say
	// facility is the syslog facility, 0 for the kernel; -1: the format doesn't say.
	facility int
	text     []byte
	// origin is the writer's name and unit the writer's unit, if the format has them.
	origin, unit string
	// printed is the kernel's own timestamp, in formats that have another time too.
	printed time.Duration
	// identifier is SYSLOG_IDENTIFIER, the name the writer gives itself, if the format has it.
	identifier string
	kmsg       bool   // written to /dev/kmsg, or by the kernel
	raw        []byte // the whole line of a log file
	further    bool   // not the first line of its record, or the record continues another
}

var errLine = errors.New("no time where one should be")

func (f Format) parse(b []byte) (line, error) {
	if f == Kmsg {
		var r hostfs.KernelRecord
		_, err := hostfs.ParseKernelRecord(b, &r)
		if err == nil && r.Time.Seconds() > maxSeconds {
			err = errLine
		}
		return line{stamp: r.Time, level: r.Level, facility: r.Facility, text: r.Text, further: r.Fragment, kmsg: true}, err
	}
	l := line{level: -1, facility: -1}
	b = l.prefix(b)
	var ok bool
	switch f {
	case Dmesg:
		l.stamp, b, ok = seconds(b)
	case DmesgTime:
		l.stamp, b, ok = bracketed(b)
	case DmesgISO:
		l.stamp, b, ok = iso(b)
	}
	if !ok {
		return line{}, errLine
	}
	l.text, l.kmsg = b, true
	return l, nil
}

// ofKernel reports whether the kernel wrote the line; true if the format doesn't say.
func (l *line) ofKernel() bool { return l.origin == "" || l.origin == event.OriginKernel }

// writer returns the line's SYSLOG_IDENTIFIER and MESSAGE as in a journal. journald removes the
// program's name from what a program writes to /dev/kmsg, such as "systemd[1]: text".
func (l *line) writer() (identifier string, text []byte) {
	switch {
	case l.identifier != "" || l.origin != "" || !l.kmsg:
		return l.identifier, l.text
	case l.facility <= 0:
		return event.OriginKernel, l.text
	}
	tag, text, ok := bytes.Cut(l.text, []byte(": "))
	name, _, _ := bytes.Cut(tag, []byte{'['})
	if !ok || len(name) == 0 || bytes.IndexByte(tag, ' ') >= 0 {
		return "", l.text
	}
	return string(name), text
}

// prefix reads what dmesg --raw ("<6>") and --decode ("kern  :info  : ") put
// before the time.
func (l *line) prefix(b []byte) []byte {
	if n, rest, ok := rawPrefix(b); ok {
		l.level, l.facility = n&7, n>>3
		return rest
	}
	facility, rest, ok := bytes.Cut(b, []byte{':'})
	if !ok || len(facility) > 8 {
		return b
	}
	level, rest, ok := bytes.Cut(rest, []byte{':'})
	if !ok || len(level) > 8 {
		return b
	}
	fi := slices.Index(facilities(), strings.TrimSpace(string(facility)))
	li := slices.Index(levels(), strings.TrimSpace(string(level)))
	if fi < 0 || li < 0 {
		return b
	}
	l.facility, l.level = fi, li
	return bytes.TrimPrefix(rest, []byte{' '})
}

func rawPrefix(b []byte) (n int, rest []byte, ok bool) {
	if len(b) == 0 || b[0] != '<' {
		return 0, b, false
	}
	end := bytes.IndexByte(b[:min(len(b), 6)], '>')
	if end < 2 {
		return 0, b, false
	}
	number, ok := digits(b[1:end])
	return int(number), b[end+1:], ok && number <= 0xff<<3|7
}

// levels and facilities return the names that dmesg --decode writes, by number.
func levels() []string {
	return []string{"emerg", "alert", "crit", "err", "warn", "notice", "info", "debug"}
}

func facilities() []string {
	return []string{"kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp"}
}

// maxSeconds bounds a timestamp since boot: 100 years.
const maxSeconds = 100 * 366 * 24 * 3600

// seconds reads "[   12.345678] ". With CONFIG_PRINTK_CALLER another bracket
// ("[    T1]") follows.
func seconds(b []byte) (stamp time.Duration, text []byte, ok bool) {
	if len(b) == 0 || b[0] != '[' {
		return 0, nil, false
	}
	inside, rest, ok := bytes.Cut(b[1:], []byte{']'})
	if !ok || len(inside) > 32 {
		return 0, nil, false
	}
	whole, part, ok := bytes.Cut(bytes.TrimLeft(inside, " "), []byte{'.'})
	if !ok || len(part) == 0 || len(part) > 9 {
		return 0, nil, false
	}
	s, ok1 := digits(whole)
	ns, ok2 := digits(part)
	if !ok1 || !ok2 || s > maxSeconds {
		return 0, nil, false
	}
	for range 9 - len(part) {
		ns *= 10
	}
	return time.Duration(s)*time.Second + time.Duration(ns), caller(bytes.TrimPrefix(rest, []byte{' '})), true
}

// caller removes the printing thread or CPU: "[    T1] " or "[   C12] ".
func caller(b []byte) []byte {
	if len(b) == 0 || b[0] != '[' {
		return b
	}
	end := bytes.IndexByte(b[:min(len(b), 16)], ']')
	if end < 0 {
		return b
	}
	inside := bytes.TrimLeft(b[1:end], " ")
	if len(inside) < 2 || inside[0] != 'T' && inside[0] != 'C' {
		return b
	}
	if _, ok := digits(inside[1:]); !ok {
		return b
	}
	return bytes.TrimPrefix(b[end+1:], []byte{' '})
}

func digits(b []byte) (n uint64, ok bool) {
	n, err := strconv.ParseUint(string(b), 10, 40)
	return n, err == nil
}

// bracketed reads "[Fri Jan  2 15:04:05 2026] ".
func bracketed(b []byte) (stamp time.Duration, text []byte, ok bool) {
	if len(b) < 2 || b[0] != '[' {
		return 0, nil, false
	}
	inside, rest, ok := bytes.Cut(b[1:], []byte{']'})
	if !ok || len(inside) != len(time.ANSIC) {
		return 0, nil, false
	}
	at, err := time.Parse(time.ANSIC, string(inside))
	if err != nil || !sane(at) {
		return 0, nil, false
	}
	return time.Duration(at.UnixNano()), bytes.TrimPrefix(rest, []byte{' '}), true
}

// iso reads "2026-01-02T15:04:05,123456+00:00 ".
func iso(b []byte) (stamp time.Duration, text []byte, ok bool) {
	word, rest, _ := bytes.Cut(b, []byte{' '})
	if len(word) > 40 {
		return 0, nil, false
	}
	at, err := time.Parse(time.RFC3339, strings.Replace(string(word), ",", ".", 1))
	if err != nil || !sane(at) {
		return 0, nil, false
	}
	return time.Duration(at.UnixNano()), rest, true
}

// sane reports whether a time is in the range that nanoseconds since 1970 can express.
func sane(at time.Time) bool { return at.Year() >= 1970 && at.Year() < 2200 }
