package agent

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"golang.org/x/sync/errgroup"
)

// The agent ends because one part failed, and another part hangs: both are reported. After a
// signal, only the part that hangs is.
func TestPartsThatHang(t *testing.T) {
	broken, signal := errors.New("broken"), errors.New("signal")
	for _, fails := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			stop, end := context.WithCancelCause(t.Context())
			defer end(nil)
			g, running := errgroup.WithContext(stop)
			hang := make(chan struct{})
			g.Go(func() error { <-hang; return nil })
			if fails {
				g.Go(func() error { return broken })
			} else {
				end(signal)
			}
			err := wait(stop, running, g)
			if err == nil || !strings.Contains(err.Error(), "some parts have not stopped") || errors.Is(err, broken) != fails || errors.Is(err, signal) {
				t.Errorf("a part fails: %v; got %v", fails, err)
			}
			close(hang)
		})
	}
}
