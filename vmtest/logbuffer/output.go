package logbuffer

import (
	"io"
	"sync"
	"testing"
)

// untilEnd is a test's output until that ends.
type untilEnd struct {
	mu  sync.Mutex
	out io.Writer
}

// Output is the test's, for what may log once more when the test has ended, as goroutines of
// a manager that was stopped do: the test's own output panics then.
func Output(tb testing.TB) io.Writer {
	w := &untilEnd{out: tb.Output()}
	tb.Cleanup(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.out = io.Discard
	})
	return w
}

// Write implements [io.Writer].
func (w *untilEnd) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.out.Write(b)
}
