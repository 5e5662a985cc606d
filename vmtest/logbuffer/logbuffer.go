// Package logbuffer provides a log that a test can read while others write it, and a writer to a
// test's output. Only tests may import it.
package logbuffer

import (
	"strings"
	"sync"
	"time"

	"github.com/kernosis/kernosis/vmtest/await"
)

// Buffer collects what is written to it. The zero value is ready for use. Its methods may be called
// concurrently, except Wait, which needs a single caller.
type Buffer struct {
	mu      sync.Mutex
	text    strings.Builder
	written chan struct{} // created by the first Wait
}

// Write never fails.
func (b *Buffer) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case b.written <- struct{}{}: // a nil channel until Wait is called
	default:
	}
	return b.text.Write(text)
}

// String returns all that was written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// Wait waits until ok returns true for the content, for the time that [await.Within] returns, and
// returns the content and whether ok was true.
func (b *Buffer) Wait(within time.Duration, ok func(string) bool) (string, bool) {
	deadline := time.After(await.Within(within))
	b.mu.Lock()
	if b.written == nil {
		b.written = make(chan struct{}, 1)
	}
	b.mu.Unlock()
	for {
		if s := b.String(); ok(s) {
			return s, true
		}
		select {
		case <-b.written:
		case <-deadline:
			return b.String(), false
		}
	}
}
