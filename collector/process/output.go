package process

import (
	"os"
	"sync"
)

// kept is the beginning of an output, with the number of dropped bytes.
type kept struct {
	limit   int
	bytes   []byte
	dropped uint64
}

// add keeps as much as fits.
func (k *kept) add(b []byte) {
	n := min(len(b), k.limit-len(k.bytes))
	k.bytes = append(k.bytes, b[:n]...)
	k.dropped += uint64(len(b) - n)
}

// merged is the output of both streams, in the order in which it was read.
type merged struct {
	mu sync.Mutex
	kept
}

// capture reads one stream of a program: it keeps the first bytes and counts the rest.
type capture struct {
	r    *os.File
	done chan struct{} // closed when the stream has ended; read the other fields only then

	kept
	tail []byte // its end, also if it is in kept
	both *merged
}

// newCapture returns a capture and the program's end of the pipe, which the caller closes once the
// program has it.
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
	buf := make([]byte, 64<<10) // the capacity of a pipe
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

// close stops reading, even if processes could still write.
func (c *capture) close() {
	_ = c.r.Close()
	<-c.done
}
