package operation

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, stuck := newPatience(), make(chan struct{})
		hang := func() (int, error) { <-stuck; return 1, nil }
		answer := func() (int, error) { return 7, nil }
		if n, err := look(t.Context(), p, time.Second, answer); n != 7 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		for range hangingLooks {
			began := time.Now()
			_, err := look(t.Context(), p, time.Second, hang)
			var late *noAnswerError
			if !errors.As(err, &late) || time.Since(began) != time.Second {
				t.Errorf("%v after %s", err, time.Since(began))
			}
		}
		if _, err := look(t.Context(), p, time.Second, answer); err == nil || !strings.Contains(err.Error(), "earlier looks") {
			t.Errorf("%v", err)
		}
		close(stuck)
		synctest.Wait()
		if n, err := look(t.Context(), p, time.Second, answer); n != 7 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		never := make(chan struct{})
		if _, err := look(ctx, p, time.Second, func() (int, error) { <-never; return 0, nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		close(never)
	})
}
