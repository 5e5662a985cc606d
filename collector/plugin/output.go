package plugin

import (
	"os"
)

// capture reads one stream of a program: it keeps the first bytes and counts the
// rest.
type capture struct {
	r    *os.File
	done chan struct{} // closed when the stream has ended; then the rest is to be read

	kept    []byte
	dropped uint64
}

// newCapture returns a capture of the program's end of the pipe, which is to be
// closed here once the program has it.
func newCapture(limit int) (c *capture, w *os.File, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	return &capture{r: r, done: make(chan struct{}), kept: make([]byte, 0, limit)}, w, nil
}

// run reads until the last writer has closed the pipe, or close is called.
func (c *capture) run() {
	defer close(c.done)
	for len(c.kept) < cap(c.kept) {
		n, err := c.r.Read(c.kept[len(c.kept):cap(c.kept)])
		c.kept = c.kept[:len(c.kept)+n]
		if err != nil {
			return
		}
	}
	waste := make([]byte, 64<<10) // what a pipe holds
	for {
		n, err := c.r.Read(waste)
		c.dropped += uint64(n)
		if err != nil {
			return
		}
	}
}

// close ends reading, whoever may still write.
func (c *capture) close() {
	_ = c.r.Close()
	<-c.done
}
