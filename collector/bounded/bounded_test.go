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

func TestDoSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Calls{}
		hang := make(chan struct{})
		var then error
		ask := func(steps int, hangs bool) (int, error) {
			return DoSteps(c, time.Second, func(step func() error) (int, error) {
				for range steps {
					time.Sleep(900 * time.Millisecond)
					if err := step(); err != nil {
						return 0, err
					}
				}
				if hangs {
					<-hang
					then = step()
				}
				return 7, nil
			})
		}
		if n, err := ask(100, false); n != 7 || err != nil {
			t.Errorf("got %d, %v", n, err)
		}
		began := time.Now()
		if n, err := ask(3, true); n != 0 || !errors.Is(err, ErrLate) || time.Since(began) > (2700+2000)*time.Millisecond {
			t.Errorf("got %d, %v after %v", n, err, time.Since(began))
		}
		close(hang)
		synctest.Wait()
		if st := c.Stats(); !errors.Is(then, ErrLate) || st != (Stats{Late: 1}) {
			t.Errorf("%v, %+v", then, st)
		}
	})
}
