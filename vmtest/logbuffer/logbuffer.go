// Package logbuffer has a log that a test can read while others write it, and a test's output
// that they can write. Only tests may import it.
package logbuffer

import (
	"strings"
	"sync"
	"time"

	"github.com/kernosis/kernosis/vmtest/await"
)

// Buffer keeps what is written to it. The zero value is empty. Its methods may be called
// from several goroutines, Wait from one.
type Buffer struct {
	mu      sync.Mutex
	text    strings.Builder
	written chan struct{} // made by the first Wait
}

// Write never fails.
func (b *Buffer) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case b.written <- struct{}{}: // nil until somebody waits
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

// Wait returns the content once ok is true for it, or with false after the time, which
// [await.Within] stretches.
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
