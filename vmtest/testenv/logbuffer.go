package testenv

import (
	"strings"
	"sync"
	"time"
)

// LogBuffer is a log that a test can read while others write it. The zero value is ready for use.
// Its methods may be called concurrently, except Wait, which needs a single caller.
type LogBuffer struct {
	mu      sync.Mutex
	text    strings.Builder
	written chan struct{} // created by the first Wait
}

// Write never fails.
func (b *LogBuffer) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case b.written <- struct{}{}: // a nil channel until Wait is called
	default:
	}
	return b.text.Write(text)
}

// String returns all that was written so far.
func (b *LogBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// Wait waits until ok returns true for the content, for the time that [Within] returns, and
// returns the content and whether ok was true.
func (b *LogBuffer) Wait(within time.Duration, ok func(string) bool) (string, bool) {
	deadline := time.After(Within(within))
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
