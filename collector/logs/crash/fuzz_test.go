package crash

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/logs"
)

// A record of a panic has lines that identify it, whatever its text is, and the same ones whether
// it is in one part or in two.
func FuzzRecord(f *testing.F) {
	_, begin, _ := strings.Cut(older, "\n")
	_, end, _ := strings.Cut(newer, "\n")
	f.Add([]byte(begin+end), uint16(len(begin)))
	f.Add([]byte(whole), uint16(20))
	f.Add([]byte("<999>[  1.000000][ T123] a\r\n\x1b\x00\nKernel panic - not syncing: x"), uint16(0))
	f.Add([]byte(""), uint16(0))
	parse := func(t *testing.T, number int, text []byte) part {
		of := file{path: fmt.Sprintf("/sys/fs/pstore/dmesg-erst-%d", number), modified: time.Unix(1795000000, 0)}
		p := of.parse(fmt.Appendf(nil, "Panic#2 Part%d\n%s", number, text))
		if p.number != number || p.reason != "Panic" || !bytes.Equal(p.text, text) {
			t.Fatalf("%+v", p)
		}
		return p
	}
	f.Fuzz(func(t *testing.T, text []byte, at uint16) {
		of := records([]part{parse(t, 1, text)})
		lines, id := of[0].lines()
		if len(of) != 1 || id == "" || len(lines) == 0 {
			t.Fatalf("%q: %d records, %d lines, id %q", text, len(of), len(lines), id)
		}
		for i, l := range lines {
			if l.Seq != uint64(i+1) || len(l.Text) == 0 || bytes.ContainsFunc(l.Text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
				t.Errorf("line %d: %+v", i, l)
			}
		}
		panicLine := func(l logs.Line) bool {
			return l.Author() == event.OriginKernel && bytes.HasPrefix(l.Text, []byte(panicked))
		}
		if last := lines[len(lines)-1]; (last.Origin == event.CrashLog) == slices.ContainsFunc(lines, panicLine) {
			t.Errorf("%q ends in %+v", text, last)
		}
		if bytes.ContainsRune(text, 0) {
			return // left out at the ends of a part
		}
		cut := bytes.LastIndexByte(text[:min(int(at), len(text))], '\n') + 1
		of = records([]part{parse(t, 1, text[cut:]), parse(t, 2, text[:cut])})
		again, idAgain := of[0].lines()
		if len(of) != 1 || id != idAgain {
			t.Errorf("%q in two parts: %d records, id %q and %q", text, len(of), id, idAgain)
		}
		if diff := cmp.Diff(lines, again); diff != "" {
			t.Errorf("%q in two parts:\n%s", text, diff)
		}
	})
}

// A corrupted position is refused or harmless.
func FuzzPosition(f *testing.F) {
	f.Add(string(position{since: time.Unix(1795249509, 0), seen: []string{sum("a"), sum("b")}}.text()))
	f.Add("-9223372036854775808 x")
	f.Add("9223372036854775807 \u00a0")
	f.Fuzz(func(t *testing.T, text string) {
		p, ok := parsePosition(logs.Position(text))
		if !ok {
			return
		}
		if again, ok := parsePosition(p.text()); !ok || again.text() != p.text() || !again.since.Equal(p.since) {
			t.Errorf("%q is %+v, and %+v, %v", text, p, again, ok)
		}
	})
}
