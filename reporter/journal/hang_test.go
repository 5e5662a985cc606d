package journal

import (
	"bytes"
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// hang makes the writer block, as on a disk that does not respond, until release is called.
func hang(t *testing.T, j *Journal) (release func()) {
	t.Helper()
	wait := make(chan struct{})
	go func() {
		if err := j.Do(context.Background(), func() error { <-wait; return nil }); err != nil {
			t.Error(err)
		}
	}()
	synctest.Wait()
	return func() { close(wait); synctest.Wait() }
}

// took fails the test if a step does not take the given time.
func took(t *testing.T, want time.Duration, step func()) {
	t.Helper()
	began := time.Now()
	step()
	if got := time.Since(began); got != want {
		t.Errorf("it took %v, want %v", got, want)
	}
}

// The first entry waits a second for a disk that hangs, later ones don't wait. When the disk
// responds again, all are written in order.
func TestEntriesWaitForADiskThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		j := mustOpen(t, dir, Options{})
		took(t, 0, func() { mustAppend(t, j, oom(1)) })
		release := hang(t, j)
		took(t, time.Second, func() { mustAppend(t, j, oom(2)) })
		var line []byte
		took(t, 0, func() {
			for n := 3; n <= 100; n++ {
				seq, l, err := j.Add(oom(n))
				if err = errors.Join(err, j.Flush()); err != nil || seq != uint64(n) {
					t.Fatalf("number %d, %v; want %d", seq, err, n)
				}
				line = bytes.Clone(l)
			}
		})
		time.Sleep(9 * time.Second)
		if s := j.Stats(); s.Appended != 1 || s.Failed != 0 || s.Waiting != 99 || s.Late != 10*time.Second || j.Seq() != 100 || j.Written() != 1 {
			t.Errorf("%+v, newest %d, written up to %d", s, j.Seq(), j.Written())
		}
		if got := readAll(t, dir, 0); len(got) != 1 {
			t.Errorf("the files have %d entries meanwhile", len(got))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := j.Sync(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("sync: %v", err)
		}

		release()
		if s := j.Stats(); s.Appended != 100 || s.Waiting != 0 || s.Late != 0 || j.Written() != 100 {
			t.Errorf("%+v, written up to %d", s, j.Written())
		}
		took(t, 0, func() { mustAppend(t, j, oom(101)) })
		got := readAll(t, dir, 0)
		for i, e := range got {
			if e.Seq != uint64(i)+1 || e.Event.Task.PID != uint32(i)+1 {
				t.Errorf("entry %d has number %d and process %d", i, e.Seq, e.Event.Task.PID)
			}
		}
		if len(got) != 101 || !json100(line, got[99]) {
			t.Errorf("%d entries; the line of the 100th was %s", len(got), line)
		}
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	})
}

// json100 reports whether a line is the encoded entry e.
func json100(line []byte, e Entry) bool {
	got, ok := decodeEntry(line)
	return ok && got.Seq == e.Seq && got.Now.Equal(e.Now)
}

// An entry that does not fit in memory is lost and counted; its number is reused for the next.
func TestEntriesThatWaitAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		j := mustOpen(t, dir, Options{maxWaiting: 4 << 10})
		release := hang(t, j)
		lost := 0
		for n := range 100 {
			if _, err := j.Append(oom(n)); err != nil {
				lost++
			}
		}
		s := j.Stats()
		if lost == 0 || s.Waiting == 0 || s.Waiting+lost != 100 || s.Failed != uint64(lost) {
			t.Errorf("%d lost, %+v", lost, s)
		}
		release()
		if seq := mustAppend(t, j, oom(100)); seq != uint64(s.Waiting)+1 {
			t.Errorf("number %d behind %d entries", seq, s.Waiting)
		}
		if got := readAll(t, dir, 0); len(got) != s.Waiting+1 {
			t.Errorf("the files have %d entries", len(got))
		}
	})
}

// An entry whose write fails after it had its number leaves a gap, and is counted.
func TestWriteThatFailsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		j := mustOpen(t, dir, Options{})
		mustAppend(t, j, oom(1))
		whole := j.file
		broken, err := os.Open(os.DevNull) // opened read-only, so that writes fail
		if err != nil {
			t.Fatal(err)
		}
		defer broken.Close()
		wait := make(chan struct{})
		step := func(f func()) {
			go func() { _ = j.Do(context.Background(), func() error { f(); return nil }) }()
			synctest.Wait()
		}
		step(func() { <-wait; j.file = broken })
		mustAppend(t, j, oom(2))
		step(func() { j.file = whole })
		mustAppend(t, j, oom(3))
		close(wait)
		synctest.Wait()
		if s := j.Stats(); s.Appended != 2 || s.Failed != 1 || j.Written() != 3 {
			t.Errorf("%+v, written up to %d", s, j.Written())
		}
		if got := readAll(t, dir, 0); len(got) != 2 || got[1].Seq != 3 {
			t.Errorf("the files have %+v", got)
		}
	})
}

// Close does not wait forever, and queued entries are written when the disk responds again.
func TestCloseOnADiskThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		j := mustOpen(t, dir, Options{})
		release := hang(t, j)
		mustAppend(t, j, oom(1))
		took(t, closeWithin, func() {
			if err := j.Close(); err == nil {
				t.Error("it reports that everything was written")
			}
		})
		if _, err := j.Append(oom(2)); !errors.Is(err, os.ErrClosed) {
			t.Errorf("append: %v", err)
		}
		release()
		if got := readAll(t, dir, 0); len(got) != 1 {
			t.Errorf("the files have %d entries", len(got))
		}
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	})
}
