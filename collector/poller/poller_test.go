package poller

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/vmtest/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.CheckLeaks(m.Run)) }

// long is longer than any wait of these tests takes.
const long = 20 * time.Second

func pipe(t *testing.T) (r, w int) {
	t.Helper()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = unix.Close(fds[0]), unix.Close(fds[1]) })
	return fds[0], fds[1]
}

func write(t *testing.T, fd int) {
	t.Helper()
	if _, err := unix.Write(fd, []byte("x")); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, fd int) {
	t.Helper()
	if _, err := unix.Read(fd, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
}

func newPoller(t *testing.T, fds ...int) *Poller {
	t.Helper()
	p, err := New(fds...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// waits reports whether a Wait returned before its timeout.
func waits(t *testing.T, p *Poller, atMost time.Duration) bool {
	t.Helper()
	began := time.Now()
	if err := p.Wait(atMost); err != nil {
		t.Fatal(err)
	}
	return time.Since(began) < atMost
}

func TestWait(t *testing.T) {
	r1, w1 := pipe(t)
	r2, w2 := pipe(t)
	p := newPoller(t, r1, r2)
	if waits(t, p, 10*time.Millisecond) {
		t.Error("woken by nothing")
	}
	for range 3 {
		for r, w := range map[int]int{r1: w1, r2: w2} {
			write(t, w) // before
			for range 2 {
				if !waits(t, p, long) {
					t.Error("what was there before, and was not read, is not seen")
				}
			}
			write(t, w) // while nobody waits
			read(t, r)
			if waits(t, p, 10*time.Millisecond) {
				t.Error("woken by what has been read")
			}
			done := make(chan bool)
			go func() { done <- waits(t, p, long) }()
			write(t, w)
			if !<-done {
				t.Error("what comes while it waits is not seen")
			}
			read(t, r)
		}
	}
}

func TestNoTimeLimit(t *testing.T) {
	r, w := pipe(t)
	p := newPoller(t, r)
	if waits(t, p, time.Millisecond) {
		t.Error("woken by nothing")
	}
	done := make(chan error)
	go func() { done <- p.Wait(-1) }()
	write(t, w)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestClose(t *testing.T) {
	r, _ := pipe(t)
	p := newPoller(t, r)
	done := make(chan error)
	go func() { done <- p.Wait(-1) }()
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, os.ErrClosed) {
		t.Errorf("got %v", err)
	}
	if err := p.Wait(long); !errors.Is(err, os.ErrClosed) {
		t.Errorf("got %v", err)
	}
}

func TestNothingToWaitFor(t *testing.T) {
	file, err := os.Open("poller_test.go")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := New(int(file.Fd())); !errors.Is(err, unix.EPERM) {
		t.Errorf("a file of a filesystem: %v", err)
	}
}

func TestWaitAllocates(t *testing.T) {
	r, w := pipe(t)
	p := newPoller(t, r)
	one := make([]byte, 1)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := unix.Write(w, one); err != nil {
			t.Fatal(err)
		}
		if err := p.Wait(long); err != nil {
			t.Fatal(err)
		}
		if _, err := unix.Read(r, one); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
