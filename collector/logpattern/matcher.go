package logpattern

import (
	"bytes"
	"math/bits"
	"slices"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
)

// MaxLine is how many bytes of a line are matched. Records of /dev/kmsg are not longer
// (CONSOLE_EXT_LOG_MAX), and in other logs the report of a fault is near the start of its line.
const MaxLine = 8 << 10

// Matcher matches a Set's patterns against one stream of lines. It is not safe for concurrent use.
type Matcher struct {
	set    *Set
	window window
	line   uint64 // number of the latest line
	runs   uint64 // of expressions, for tests of what they cost

	mask   bitset   // patterns for this log
	always bitset   // patterns that run on every line
	found  bitset   // patterns whose literal was found; all clear between calls
	recent bitset   // patterns whose literal was in one of the last lines
	seen   []uint64 // by pattern: the latest line with its literal; nil if no pattern needs it
	idle   bool     // no pattern is for this log
	every  bool     // always isn't empty
	live   bool     // recent isn't empty
}

// NewMatcher returns a matcher for one stream of a log that has these names. A pattern without logs
// is for all of them but event.CrashLog.
func (s *Set) NewMatcher(names ...string) *Matcher {
	n := len(s.patterns)
	m := &Matcher{set: s, mask: newBitset(n), always: newBitset(n), found: newBitset(n), recent: newBitset(n), idle: true}
	crash := slices.Contains(names, event.CrashLog)
	for i, p := range s.patterns {
		if (len(p.Logs) > 0 || crash) && !slices.ContainsFunc(p.Logs, func(log string) bool { return slices.Contains(names, log) }) {
			continue
		}
		m.idle = false
		m.mask.set(i)
		if s.always.has(i) {
			m.always.set(i)
			m.every = true
		}
		if s.aged.has(i) && m.seen == nil {
			m.seen = make([]uint64, n)
		}
		if p.scope == inLines || p.scope == inBuffer {
			m.window.lines = max(m.window.lines, p.Lines)
		}
	}
	m.window.reset()
	return m
}

// Reset drops all earlier lines, because the next line doesn't directly follow them.
func (m *Matcher) Reset() {
	m.window.reset()
	clear(m.recent)
	m.live = false
}

// Recent returns a copy of the latest lines, each followed by a newline, as far as patterns may
// match them together with further lines; nil if there are none.
func (m *Matcher) Recent() []byte {
	w := &m.window
	// The oldest line leaves the window when the next one comes.
	n := min(w.real, w.lines-1)
	if n <= 0 {
		return nil
	}
	return bytes.Clone(w.buf[w.start(n-1):])
}

// Resume adds the lines that [Matcher.Recent] of another matcher returned, as if they came before
// the next line. Their matches are not reported.
func (m *Matcher) Resume(lines []byte) {
	m.Reset()
	var hits Hits
	for line := range bytes.Lines(lines) {
		m.Match(bytes.TrimSuffix(line, []byte{'\n'}), &hits)
	}
}

// Runs returns how often a pattern's expression was run, on one or more parts of a line.
func (m *Matcher) Runs() uint64 { return m.runs }

// Match checks the next line, given without its newline, and reports whether any pattern matches a
// text that ends in it; the matches are stored in into. A line without matches costs no
// allocation. The line is not changed, and only into refers to it after the call.
func (m *Matcher) Match(line []byte, into *Hits) bool {
	into.Hits, into.captures, into.Cut = into.Hits[:0], into.captures[:0], false
	if len(line) > MaxLine {
		line = display.Prefix(line, MaxLine)
		into.Cut = true
	}
	if m.idle {
		return false
	}
	m.line++
	if m.window.lines > 0 {
		m.window.push(line)
	}
	if !m.set.literals.scan(line, m.found) && !m.every && !m.live {
		return false
	}
	if m.seen != nil {
		m.remember()
	}
	for i, word := range m.found {
		m.found[i] = 0
		for word = (word | m.always[i]) & m.mask[i]; word != 0; word &= word - 1 {
			m.run(i*64+bits.TrailingZeros64(word), line, into)
		}
	}
	return len(into.Hits) > 0
}

// remember keeps the literals found now for the next lines, and adds those found in the last ones,
// for the patterns that may have their literal in an earlier line.
func (m *Matcher) remember() {
	m.live = false
	for i := range m.found {
		now := m.found[i] & m.set.aged[i] & m.mask[i]
		m.recent[i] |= now
		for word := m.recent[i]; word != 0; word &= word - 1 {
			p := i*64 + bits.TrailingZeros64(word)
			if now&(1<<(p%64)) != 0 {
				m.seen[p] = m.line
			} else if m.line-m.seen[p] >= uint64(m.set.patterns[p].Lines) { //nolint:gosec // 1 to MaxLines
				m.recent.clear(p)
			}
		}
		m.found[i] |= m.recent[i]
		m.live = m.live || m.recent[i] != 0
	}
}

// run runs a pattern's expression on the text of its scope.
func (m *Matcher) run(index int, line []byte, into *Hits) {
	m.runs++
	c := m.set.patterns[index]
	switch c.scope {
	case inLine:
		for more := true; more; {
			var part []byte
			part, line, more = bytes.Cut(line, []byte{'\n'})
			if at := c.find(part); at != nil {
				into.add(index, c, part, at, part, 1)
				return
			}
		}
	case inRecord:
		if at := c.find(line); at != nil {
			into.add(index, c, line, at, line, 1)
		}
	case inBuffer:
		w := &m.window
		from := w.start(min(c.Lines, w.kept) - 1)
		if at := c.find(w.buf[from:w.end()]); at != nil {
			lines := w.touched(from + at[0])
			into.add(index, c, w.buf[from:w.end()], at, w.buf[w.start(lines-1):w.end()], lines)
		}
	case inLines:
		m.runParts(index, c, into)
	}
}

// runParts searches, for each part of the latest line, the last parts up to and including it.
func (m *Matcher) runParts(index int, c *compiled, into *Hits) {
	w := &m.window
	oldest := w.start(w.real - 1)
	for start := w.start(0); start <= w.end(); {
		end := start + bytes.IndexByte(w.buf[start:], '\n') // each line is followed by one
		start = end + 1
		from := start
		for range c.Lines {
			if from > oldest {
				from = oldest + bytes.LastIndexByte(w.buf[oldest:from-1], '\n') + 1
			}
		}
		text := w.buf[from:end]
		at := c.find(text)
		if at == nil {
			continue
		}
		first := at[2*c.group]
		context := bytes.LastIndexByte(text[:first], '\n') + 1
		if first < len(text) && text[first] == '\n' {
			context = first + 1
		}
		into.add(index, c, text, at, text[context:], w.touched(from+first))
		return
	}
}

// Hits is the result of [Matcher.Match] for one line. It is reused: its contents are valid until
// the next call with it or with the same Matcher, and only while the line isn't changed, because
// its texts are slices of the line if possible.
type Hits struct {
	// Hits are in the order of the patterns, one per pattern.
	Hits []Hit
	// Cut: the line was cut at MaxLine. An expression's end then matches there.
	Cut bool

	captures []Capture
}

// Hit is one pattern that matched.
type Hit struct {
	Pattern int // index in the Set
	// Text is the part that the expression matched. Context has the complete lines around it,
	// joined by newlines, as in NPD's message. Each may have up to 80 KiB, the limit of what a
	// Matcher keeps.
	Text, Context []byte
	// Lines is how many lines the match touches, at least 1. NPD reports the time of the first.
	Lines int
	// Captures are the named groups that participated in the match, in the order of the expression,
	// at most 16. A name may occur more than once.
	Captures []Capture
}

// Capture is the text of a named group.
type Capture struct {
	Name string
	Text []byte
}

// add adds a hit: at are the bounds of all groups in text.
func (h *Hits) add(index int, c *compiled, text []byte, at []int, context []byte, lines int) {
	first := len(h.captures)
	for _, g := range c.captures {
		if from := at[2*g.group]; from >= 0 {
			h.captures = append(h.captures, Capture{g.name, text[from:at[2*g.group+1]]})
		}
	}
	h.Hits = append(h.Hits, Hit{
		Pattern:  index,
		Text:     text[at[2*c.group]:at[2*c.group+1]],
		Context:  context,
		Lines:    lines,
		Captures: h.captures[first:len(h.captures):len(h.captures)],
	})
}

// bitset is a set of pattern indexes.
type bitset []uint64

func newBitset(n int) bitset { return make(bitset, (n+63)/64) }

func (b bitset) set(i int)      { b[i/64] |= 1 << (i % 64) }
func (b bitset) clear(i int)    { b[i/64] &^= 1 << (i % 64) }
func (b bitset) has(i int) bool { return b[i/64]&(1<<(i%64)) != 0 }
