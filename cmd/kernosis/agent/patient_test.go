package agent

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kernosis/kernosis/collector/bounded"
)

// A reader that does not read the agent's output does not block the agent.
func TestOutputThatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads, writes := io.Pipe()
		p := &patient{w: writes}
		line := []byte("first")
		for i, want := range []time.Duration{time.Second, 0} {
			began := time.Now()
			if _, err := p.Write(line); !errors.Is(err, bounded.ErrLate) || time.Since(began) != want {
				t.Errorf("write %d: %v after %v", i, err, time.Since(began))
			}
			copy(line, "other") // the caller may reuse the buffer
		}
		got := make([]byte, 10)
		if n, err := reads.Read(got); err != nil || string(got[:n]) != "first" {
			t.Errorf("read %q, %v", got[:n], err)
		}
		synctest.Wait()
		go func() { _, _ = io.ReadFull(reads, got[:5]) }()
		if n, err := p.Write([]byte("third")); n != 5 || err != nil {
			t.Errorf("then %d, %v", n, err)
		}
		synctest.Wait()
		if string(got[:5]) != "third" {
			t.Errorf("read %q", got[:5])
		}
	})
}
