package hostfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMountWatcherFirstTableAndCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	tables := 0
	err := NewMountWatcher(fixture(t, "6.18-hybrid")).Run(ctx, func(table *MountTable) {
		if tables++; len(table.At(254, 0)) != 1 {
			t.Errorf("mounts of 254:0: %v", table.At(254, 0))
		}
		cancel()
	})
	if err != nil || tables != 1 {
		t.Errorf("Run = %v after %d tables", err, tables)
	}
}

func TestMountWatcherCancelWhilePolling(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	w := NewMountWatcher(fixture(t, "6.18-hybrid"))
	w.settle = 0
	first := make(chan struct{})
	done := make(chan error)
	go func() { done <- w.Run(ctx, func(*MountTable) { close(first) }) }()
	<-first
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run = %v", err)
	}
}

func TestMountWatcherErrors(t *testing.T) {
	if err := NewMountWatcher(New(t.TempDir())).Run(t.Context(), func(*MountTable) {}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no mountinfo: %v", err)
	}
	f := fixture(t, "6.18-hybrid")
	write(t, f, "/proc/1/mountinfo", "nonsense\n")
	if err := NewMountWatcher(f).Run(t.Context(), func(*MountTable) {}); err == nil {
		t.Error("nonsense was taken for a mount table")
	}
}

// TestMountWatcherKernel mounts and unmounts for real, in a mount namespace of
// its own.
func TestMountWatcherKernel(t *testing.T) {
	dir := t.TempDir()
	mounted := func(table *MountTable) bool {
		return slices.ContainsFunc(table.Mounts(), func(m Mount) bool { return m.Path == dir })
	}
	ready := make(chan int) // thread id
	step := make(chan func() error)
	result := make(chan error)
	go func() {
		// The thread ends with the goroutine and takes the namespace with it.
		runtime.LockOSThread()
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
	}()
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
	tables := make(chan *MountTable)
	done := make(chan error)
	go func() {
		done <- w.Run(ctx, func(table *MountTable) {
			select {
			case tables <- table:
			case <-ctx.Done():
			}
		})
	}()
	// until waits for a table that says so; one change may give several tables.
	until := func(want bool) {
		for table := range tables {
			if mounted(table) == want {
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
