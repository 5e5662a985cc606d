package operation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A run that the kernel holds up ends with its context, and writes nothing after.
func TestBoundedRun(t *testing.T) {
	stuck, ended := make(chan struct{}), make(chan error)
	b := bounded(Builtin{Name: "stuck", Run: func(_ context.Context, call *Call) (Output, error) {
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
	kept := &keptArtifacts{}
	if _, err := b.Run(ctx, &Call{Artifacts: kept}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	close(stuck)
	if err := <-ended; !errors.Is(err, errRunIsOver) || kept.files["early.txt"] != "" || len(kept.files) != 1 {
		t.Errorf("%v, %q", err, kept.files)
	}
}

// A panic is its caller's, who can contain it, and takes no place of those to come.
func TestALookThatPanics(t *testing.T) {
	b := bounded(Builtin{Name: "broken", Run: func(_ context.Context, call *Call) (Output, error) {
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
