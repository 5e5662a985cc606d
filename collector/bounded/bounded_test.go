package bounded

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Calls{Max: 2}
		hang := make(chan struct{})
		ask := func(f func() (int, error)) (int, error) { return Do(c, time.Second, f) }

		wrong := errors.New("wrong")
		if n, err := ask(func() (int, error) { return 7, wrong }); n != 7 || !errors.Is(err, wrong) {
			t.Errorf("got %d, %v", n, err)
		}
		for range 2 {
			began := time.Now()
			if n, err := ask(func() (int, error) { <-hang; return 7, nil }); n != 0 || !errors.Is(err, ErrLate) || time.Since(began) != time.Second {
				t.Errorf("got %d, %v after %v", n, err, time.Since(began))
			}
		}
		began := time.Now()
		called := false
		if err := Err(c, time.Second, func() error { called = true; return nil }); !errors.Is(err, ErrLate) || !errors.Is(err, ErrRefused) || called || time.Since(began) != 0 {
			t.Errorf("the third: called %v, %v after %v", called, err, time.Since(began))
		}
		if st := c.Stats(); st != (Stats{Behind: 2, Late: 2, Refused: 1}) {
			t.Errorf("%+v", st)
		}
		close(hang)
		synctest.Wait()
		if n, err := ask(func() (int, error) { return 8, nil }); n != 8 || err != nil {
			t.Errorf("then %d, %v", n, err)
		}
		if st := c.Stats(); st != (Stats{Late: 2, Refused: 1}) {
			t.Errorf("%+v", st)
		}
	})
}
