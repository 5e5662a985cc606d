package hostfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMountWatcherFirstCallAndCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	err := NewMountWatcher(fixture(t, "6.18-hybrid")).Run(ctx, func() { calls++; cancel() })
	if err != nil || calls != 1 {
		t.Errorf("Run = %v after %d calls", err, calls)
	}
}

func TestMountWatcherCancelWhilePolling(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	w := NewMountWatcher(fixture(t, "6.18-hybrid"))
	w.settle = 0
	first := make(chan struct{})
	done := make(chan error)
	go func() { done <- w.Run(ctx, func() { close(first) }) }()
	<-first
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run = %v", err)
	}
}

func TestMountWatcherErrors(t *testing.T) {
	if err := NewMountWatcher(New(t.TempDir())).Run(t.Context(), func() {}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no mountinfo: %v", err)
	}
}

// TestMountWatcherKernel really mounts and unmounts, in its own mount namespace.
func TestMountWatcherKernel(t *testing.T) {
	dir := t.TempDir()
	ready := make(chan int) // thread id
	step := make(chan func() error)
	result := make(chan error)
	var apart func()
	apart = func() {
		// The thread ends with the goroutine, and its namespace with it.
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() {
			// The first thread does not, and /proc/PID shows its namespace to other tests.
			var other sync.WaitGroup
			other.Go(apart)
			other.Wait()
			runtime.UnlockOSThread()
			return
		}
		if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
			ready <- 0
			return
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			ready <- 0
			return
		}
		ready <- unix.Gettid()
		for f := range step {
			result <- f()
		}
	}
	go apart()
	defer close(step)
	tid := <-ready
	if tid == 0 {
		t.Skip("no permission to make a mount namespace")
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w := NewMountWatcher(FS{})
	w.settle = 0
	w.open = func() (*os.File, error) { return openUnpolled(fmt.Sprintf("/proc/self/task/%d/mountinfo", tid)) }
	mounted := make(chan bool) // state of the table after each call
	done := make(chan error)
	go func() {
		done <- w.Run(ctx, func() {
			file, err := w.open()
			if err != nil {
				t.Error(err)
				return
			}
			defer file.Close()
			mounts, err := ParseMounts(file)
			if err != nil {
				t.Error(err)
			}
			select {
			case mounted <- slices.ContainsFunc(mounts, func(m Mount) bool { return m.Path == dir }):
			case <-ctx.Done():
			}
		})
	}()
	// until waits for a call with the wanted table; one change may cause several calls.
	until := func(want bool) {
		for is := range mounted {
			if is == want {
				return
			}
		}
	}
	until(false)
	step <- func() error { return unix.Mount("test", dir, "tmpfs", 0, "") }
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	until(true)
	step <- func() error { return unix.Unmount(dir, 0) }
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	until(false)
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run = %v", err)
	}
}
