package operation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// keptFiles are artifacts by name.
type keptFiles map[string]*keptFile

type keptFile struct{ bytes.Buffer }

func (k keptFiles) Create(name string) (io.WriteCloser, error) {
	k[name] = &keptFile{}
	return k[name], nil
}

func (*keptFile) Close() error { return nil }

// A run that the kernel blocks ends with its context, and writes nothing afterwards.
func TestBoundedRun(t *testing.T) {
	stuck, ended := make(chan struct{}), make(chan error)
	b := Bounded(Builtin{Name: "stuck", Run: func(_ context.Context, call *Call) (Output, error) {
		file, err := call.Artifacts.Create("early.txt")
		if err != nil {
			return Output{}, err
		}
		<-stuck
		_, writeErr := file.Write([]byte("late"))
		_, createErr := call.Artifacts.Create("late.txt")
		ended <- errors.Join(writeErr, createErr, file.Close())
		return Output{}, nil
	}})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	kept := keptFiles{}
	if _, err := b.Run(ctx, &Call{Artifacts: kept}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	close(stuck)
	if err := <-ended; !errors.Is(err, errRunIsOver) || kept["early.txt"].Len() > 0 || len(kept) != 1 {
		t.Errorf("%v, %q", err, kept)
	}
}

// A panic reaches the caller, who can recover, and does not occupy a slot.
func TestALookThatPanics(t *testing.T) {
	b := Bounded(Builtin{Name: "broken", Run: func(_ context.Context, call *Call) (Output, error) {
		disks := strings.Fields(call.Parameters["disks"])
		return Output{Results: map[string]string{"first": disks[0]}}, nil
	}})
	for range runsAtOnce + 1 {
		func() {
			defer func() {
				if r := fmt.Sprint(recover()); !strings.Contains(r, "index out of range") || !strings.Contains(r, "TestALookThatPanics") {
					t.Errorf("panic: %s", r)
				}
			}()
			_, err := b.Run(t.Context(), &Call{})
			t.Errorf("no panic, %v", err)
		}()
	}
}

func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, stuck := NewPatience(), make(chan struct{})
		hang := func() (int, error) { <-stuck; return 1, nil }
		answer := func() (int, error) { return 7, nil }
		if n, err := Look(t.Context(), p, time.Second, answer); n != 7 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		for range hangingLooks {
			began := time.Now()
			_, err := Look(t.Context(), p, time.Second, hang)
			var late *NoAnswerError
			if !errors.As(err, &late) || time.Since(began) != time.Second {
				t.Errorf("%v after %s", err, time.Since(began))
			}
		}
		if _, err := Look(t.Context(), p, time.Second, answer); err == nil || !strings.Contains(err.Error(), "earlier reads") {
			t.Errorf("%v", err)
		}
		close(stuck)
		synctest.Wait()
		if n, err := Look(t.Context(), p, time.Second, answer); n != 7 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		never := make(chan struct{})
		if _, err := Look(ctx, p, time.Second, func() (int, error) { <-never; return 0, nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		close(never)
	})
}
