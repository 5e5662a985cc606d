package crash

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/logs"
)

// partsWithin is how long the kernel may take to store the parts of a record. The records of
// several boots may have the same heading.
const partsWithin = time.Minute

// record is what a kernel printed last.
type record struct {
	parts []part
	at    time.Time // the latest part was stored
}

// records joins parts, which are sorted by time. It leaves out records that are not of a panic.
func records(parts []part) (out []*record) {
	for _, p := range parts {
		if p.reason != "" && p.reason != "Panic" {
			continue
		}
		i := slices.IndexFunc(out, func(r *record) bool { return r.lacks(p) })
		if i < 0 {
			i, out = len(out), append(out, &record{})
		}
		out[i].parts, out[i].at = append(out[i].parts, p), p.modified
	}
	return out
}

// lacks reports whether p is another part of the record.
func (r *record) lacks(p part) bool {
	return p.of != "" && p.of == r.parts[0].of && p.modified.Sub(r.at) <= partsWithin &&
		!slices.ContainsFunc(r.parts, func(have part) bool { return have.number == p.number })
}

// prefix is what precedes the text of a line: facility and level (pstore only), the time stamp
// unless printk.time is off, and the caller with CONFIG_PRINTK_CALLER.
var prefix = regexp.MustCompile(`^(?:<(\d{1,4})>)?(?:\[ *(\d{1,9})\.(\d{6})\](?:\[ *[TC]\d+\])? ?)?`)

// panicked begins the line that says why the kernel panicked.
const panicked = "Kernel panic - not syncing: "

// lines returns the lines of the record and the line that identifies the panic: its own line, or
// else the last one, or the time of a record without lines. That is "" if the record is not of a panic,
// or if its end is missing.
func (r *record) lines() (lines []logs.Line, id string) {
	slices.SortFunc(r.parts, func(a, b part) int { return b.number - a.number }) // oldest text first
	last, end := "", r.at.String()
	for _, p := range r.parts {
		for text := range bytes.Lines(bytes.Trim(p.text, "\x00")) {
			text = bytes.TrimRight(text, "\r\n")
			m := prefix.FindSubmatch(text)
			if text = text[len(m[0]):]; len(text) == 0 {
				continue
			}
			l := logs.Line{Time: r.at, Seq: uint64(len(lines) + 1), Text: logs.EscapeControl(text)}
			if number, err := strconv.Atoi(string(m[1])); err != nil || number < 8 {
				l.Origin = event.OriginKernel
				if err == nil {
					l.Priority = logs.PriorityName(number)
				}
			}
			// All lines of a printk have its time stamp.
			stamp := string(m[2]) + "." + string(m[3])
			if stamp != "." {
				l.Stamp, _ = time.ParseDuration(stamp + "s") // digits
				l.Continues = stamp == last
			}
			last, end = stamp, stamp+" "+string(text)
			if stamp == "." {
				end = r.at.String() + end
			}
			if l.Author() == event.OriginKernel && bytes.HasPrefix(text, []byte(panicked)) {
				id = end
			}
			lines = append(lines, l)
		}
	}
	if p := r.parts[len(r.parts)-1]; id == "" && p.reason != "" && p.number <= 1 {
		id = end
		lines = append(lines, logs.Line{
			Time: r.at, Seq: uint64(len(lines) + 1), Origin: event.CrashLog,
			Text: fmt.Appendf(nil, "the kernel crashed without a panic message, recorded in %s", p.path),
		})
	}
	return lines, id
}

// sum returns a short form of what identifies a panic.
func sum(id string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id)) // never fails
	return fmt.Sprintf("%016x", h.Sum64())
}
