package logpattern

// maxWindow is how many bytes of lines are kept for patterns that span lines: as many lines of
// maximum length as NPD's buffer has by default.
const maxWindow = NPDLines * (MaxLine + 1)

// window keeps the last lines joined by newlines.
type window struct {
	lines int    // how many to keep
	buf   []byte // each line followed by a newline
	gone  int    // bytes of the log before buf; starts are offsets in the log
	// starts is a ring of the offsets where lines start.
	starts [MaxLines]int
	newest int
	kept   int // lines kept, including padding
	real   int // lines kept that were in the log
}

// reset drops all lines. Empty lines take the place of missing ones, as in NPD's buffer.
func (w *window) reset() {
	w.buf, w.gone, w.kept, w.real = w.buf[:0], 0, 0, 0
	for range w.lines - 1 {
		w.push(nil)
	}
	w.real = 0
}

// push adds a line. It drops older ones early if they are long.
func (w *window) push(line []byte) {
	for w.kept == w.lines || w.kept > 0 && w.size()+len(line)+1 > maxWindow {
		w.kept--
		w.real = min(w.real, w.kept)
	}
	if len(w.buf)+len(line)+1 > cap(w.buf) {
		w.compact(len(line) + 1)
	}
	w.newest = (w.newest + 1) % len(w.starts)
	w.starts[w.newest] = w.gone + len(w.buf)
	w.kept++
	w.real++
	w.buf = append(w.buf, line...)
	w.buf = append(w.buf, '\n')
}

// size returns the number of bytes of the lines kept.
func (w *window) size() int {
	if w.kept == 0 {
		return 0
	}
	return len(w.buf) - w.start(w.kept-1)
}

// compact makes room for n bytes: in place if the kept lines fill less than half of the buffer.
func (w *window) compact(n int) {
	live := w.buf[len(w.buf)-w.size():]
	w.gone += len(w.buf) - len(live)
	if need := len(live) + n; need*2 <= cap(w.buf) {
		w.buf = w.buf[:copy(w.buf[:len(live)], live)]
	} else {
		w.buf = append(make([]byte, 0, max(need*2, 1024)), live...)
	}
}

// start returns the offset in buf of the line that came age (less than kept) lines before the latest.
func (w *window) start(age int) int {
	return w.starts[(w.newest-age+len(w.starts))%len(w.starts)] - w.gone
}

// end returns the offset in buf where the latest line ends.
func (w *window) end() int { return len(w.buf) - 1 }

// touched returns how many of the last lines of the log overlap with a text that starts at an offset
// in buf and ends with the latest line. A newline belongs to the line after it, as in NPD.
func (w *window) touched(from int) int {
	age := 0
	for age+1 < w.real && w.start(age)-1 > from {
		age++
	}
	return age + 1
}
