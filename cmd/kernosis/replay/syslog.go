package replay

import (
	"bytes"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/event"
)

// parseSyslog reads a line of a log file as syslog daemons write it: "Nov 23 22:31:00 node
// app[12]: text", or with an RFC 3339 time. A time without a year gets the latest year in
// which it is at most a day after written.
func parseSyslog(b []byte, written time.Time) (line, error) {
	l := line{level: -1, facility: -1}
	at, rest, ok := syslogTime(b, written)
	if !ok {
		return line{}, errLine
	}
	host, rest, ok := bytes.Cut(rest, []byte{' '})
	tag, text, ok2 := bytes.Cut(rest, []byte(": "))
	if !ok2 {
		tag, ok2 = bytes.CutSuffix(rest, []byte{':'})
	}
	if !ok || !ok2 || len(host) == 0 || host[len(host)-1] == ':' || len(tag) == 0 || bytes.IndexByte(tag, ' ') >= 0 {
		return line{}, errLine
	}
	name, _, _ := bytes.Cut(tag, []byte{'['})
	l.stamp, l.text, l.origin = time.Duration(at.UnixNano()), text, string(name)
	l.identifier, l.kmsg, l.raw = l.origin, l.origin == event.OriginKernel, b
	switch l.origin {
	case event.OriginKernel:
		if stamp, text, ok := seconds(text); ok {
			l.text, l.printed = text, stamp
		}
	case event.OriginProcess, "":
		l.origin = "syslog " + l.origin
	}
	return l, nil
}

// syslogTime reads the time at the beginning of a line, and the space after it.
func syslogTime(b []byte, written time.Time) (at time.Time, rest []byte, ok bool) {
	if len(b) > 0 && b[0] >= '0' && b[0] <= '9' {
		word, rest, ok := bytes.Cut(b, []byte{' '})
		if !ok || len(word) > 40 || bytes.IndexByte(word, ',') >= 0 { // a comma means dmesg's format
			return at, nil, false
		}
		at, err := time.Parse(time.RFC3339, string(word))
		return at, rest, err == nil && sane(at)
	}
	if len(b) <= len(time.Stamp) || b[len(time.Stamp)] != ' ' {
		return at, nil, false
	}
	text := string(b[:len(time.Stamp)])
	for year := written.Year() + 1; year > written.Year()-8; year-- {
		// Parse with the year, because only some years have a 29 February.
		at, err := time.Parse("2006 "+time.Stamp, strings.Join([]string{time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC).Format("2006"), text}, " "))
		if err == nil && !at.After(written.Add(24*time.Hour)) && sane(at) {
			return at, b[len(time.Stamp)+1:], true
		}
	}
	return at, nil, false
}
