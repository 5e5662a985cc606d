package replay

import (
	"bytes"
	"regexp"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/logs/file"
)

type timeFormat struct {
	before string // expression for what precedes the time
	expr   string // expression that finds the time
	layout string
}

// timeFormats returns the time formats to find in lines of a plain file. If several match at the same
// position, the first one is used.
func timeFormats() []timeFormat {
	const day, clock = `\d{4}-\d\d-\d\d`, `\d\d:\d\d:\d\d(?:[.,]\d+)?`
	return []timeFormat{
		{"", day + `T` + clock + `(?:Z|[+-]\d\d:\d\d)`, time.RFC3339},
		{"", day + `T` + clock, "2006-01-02T15:04:05"},
		{"", day + ` ` + clock + `(?:Z|[+-]\d\d:\d\d)`, "2006-01-02 15:04:05Z07:00"},
		{"", day + ` ` + clock + ` [+-]\d{4}`, "2006-01-02 15:04:05 -0700"},
		{"", day + ` ` + clock, time.DateTime},
		{"", `\d{4}/\d\d/\d\d ` + clock, "2006/01/02 15:04:05"},                                 // Go's log, nginx
		{"", `\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}`, "02/Jan/2006:15:04:05 -0700"}, // access logs
		{`\b[IWEF]`, `\d{4} ` + clock, "0102 15:04:05"},                                         // klog
		{"", `[A-Z][a-z]{2} [ \d]\d ` + clock, time.Stamp},
	}
}

// maxTimeAt is how far into a line a time is looked for, in bytes.
const maxTimeAt = 256

// plain reads lines of a file of unknown format. The whole line is the text, as for an agent that
// reads the file without a format.
type plain struct {
	any     *regexp.Regexp // has one group for each parser, which matches the time
	parsers []*file.Parser
	first   time.Time // time of lines before the first line that has one
}

func newPlain() *plain {
	p := &plain{}
	var exprs []string
	for _, f := range timeFormats() {
		exprs = append(exprs, f.before+"("+f.expr+")")
		parser, err := file.NewParser(file.Format{Timestamp: f.expr, TimestampFormat: f.layout, Location: time.UTC}, nil)
		if err != nil {
			panic(err) // the formats are constants
		}
		p.parsers = append(p.parsers, parser)
	}
	p.any = regexp.MustCompile(strings.Join(exprs, "|"))
	return p
}

// time returns the first time in a line.
func (p *plain) time(b []byte, written time.Time) (at time.Time, ok bool) {
	found := p.any.FindSubmatchIndex(b[:min(len(b), maxTimeAt)])
	for i, parser := range p.parsers {
		if found == nil || found[2*i+2] < 0 {
			continue
		}
		_, at, _, err := parser.Parse(b[found[2*i+2]:found[2*i+3]], written)
		return at, err == nil && sane(at)
	}
	return at, false
}

// plainLine reads a line. A line without a time gets the time of the line before it.
func (r *Replay) plainLine(b []byte) line {
	l := line{level: -1, facility: -1, text: b, raw: b, origin: r.file}
	switch at, ok := r.plain.time(b, r.written); {
	case ok:
		l.stamp = time.Duration(at.UnixNano())
	case r.have:
		l.stamp = r.last.stamp
	default:
		l.stamp = time.Duration(r.plain.first.UnixNano())
	}
	return l
}

// beginPlain prepares for a file that begins with head.
func (r *Replay) beginPlain(head []byte) {
	r.plain = newPlain()
	r.plain.first = r.written
	for b := range bytes.Lines(head) {
		if at, ok := r.plain.time(b, r.written); ok {
			r.plain.first = at
			break
		}
	}
}
