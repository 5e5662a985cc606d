package testenv

import (
	"io"
	"sync"
	"testing"
)

// untilEnd writes to a test's output until the test ends.
type untilEnd struct {
	mu  sync.Mutex
	out io.Writer
}

// Output returns a writer to the test's output that discards what is written after the test has
// ended, when the test's own output would panic. Goroutines of a stopped manager, for example, may
// still log then.
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
