// Package logbuffer has a log that a test can read while others write it. Only tests
// may import it.
package logbuffer

import (
	"strings"
	"sync"
)

// Buffer keeps what is written to it. The zero value is empty, and all methods may be
// called from several goroutines.
type Buffer struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write never fails.
func (b *Buffer) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(text)
}

// String returns all that was written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
