package process

import (
	"os"
	"sync"
)

// kept is the beginning of what is written, and how much is left out.
type kept struct {
	limit   int
	bytes   []byte
	dropped uint64
}

// add keeps what there is room for.
func (k *kept) add(b []byte) {
	n := min(len(b), k.limit-len(k.bytes))
	k.bytes = append(k.bytes, b[:n]...)
	k.dropped += uint64(len(b) - n)
}

// merged is what both streams have, in the order in which it was read.
type merged struct {
	mu sync.Mutex
	kept
}

// capture reads one stream of a program: it keeps the first bytes and counts the
// rest.
type capture struct {
	r    *os.File
	done chan struct{} // closed when the stream has ended; then the rest is to be read

	kept
	tail []byte // its end, once more
	both *merged
}

// newCapture returns a capture of the program's end of the pipe, which is to be
// closed here once the program has it.
func newCapture(limit int, both *merged) (c *capture, w *os.File, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	return &capture{r: r, done: make(chan struct{}), kept: kept{limit: limit}, both: both}, w, nil
}

// run reads until the last writer has closed the pipe, or close is called.
func (c *capture) run() {
	defer close(c.done)
	buf := make([]byte, 64<<10) // what a pipe holds
	for {
		n, err := c.r.Read(buf)
		c.take(buf[:n])
		if err != nil {
			return
		}
	}
}

func (c *capture) take(b []byte) {
	c.add(b)
	if len(b) >= maxTail {
		c.tail = append(c.tail[:0], b[len(b)-maxTail:]...)
	} else {
		c.tail = append(c.tail[max(0, len(c.tail)+len(b)-maxTail):], b...)
	}
	if c.both.limit > 0 {
		c.both.mu.Lock()
		c.both.add(b)
		c.both.mu.Unlock()
	}
}

// close ends reading, whoever may still write.
func (c *capture) close() {
	_ = c.r.Close()
	<-c.done
}
