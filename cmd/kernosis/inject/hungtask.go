package inject

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Hang is a task stuck in uninterruptible sleep and the task it waits for.
type Hang struct {
	Waiter Task
	Holder Task // zero if no task holds what the waiter waits for
}

// HungTask makes a task hang on a lock that another task holds, without module
// or filesystem: the holder reads from a pipe into a page registered with
// userfaultfd, so it sleeps in the page fault with the pipe's mutex held; the
// waiter writes to the same pipe. The fault ends when the page is filled in: by
// Heal, after Limit, or by the holder's end. Its fields are set before Start.
// Not safe for concurrent use.
type HungTask struct {
	Limit  time.Duration // the holder releases the lock after this; 0 for DefaultLimit
	Cgroup string        // directory of a v2 cgroup that the waiter is started in; empty: this process's

	holder *child
	waiter writer
}

// Start returns once the waiter hangs.
func (h *HungTask) Start(ctx context.Context) (hang Hang, err error) {
	if h.Limit <= 0 {
		h.Limit = DefaultLimit
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("hang a task: %w", err), h.Close())
		}
	}()
	r, w, err := os.Pipe()
	if err != nil {
		return Hang{}, err
	}
	defer r.Close()
	defer w.Close()
	// One byte to read, or the holder would sleep for data, without the mutex.
	if _, err = w.Write([]byte{1}); err != nil {
		return Hang{}, fmt.Errorf("fill pipe: %w", err)
	}
	if h.holder, err = startChild("hang-holder", childOptions{files: []*os.File{r}}, h.Limit.String()); err != nil {
		return Hang{}, err
	}
	if hang.Holder, err = ask[Task](ctx, h.holder, hangRequest{Do: "hold"}); err != nil {
		return Hang{}, err
	}
	if h.waiter, err = startWriter(ctx, "kn-hang-waiter", w, h.Cgroup); err != nil {
		return Hang{}, err
	}
	hang.Waiter = h.waiter.task
	return hang, h.waiter.hang(ctx)
}

// Heal lets the holder continue and returns once the waiter has written.
func (h *HungTask) Heal(ctx context.Context) error {
	if _, err := ask[Task](ctx, h.holder, hangRequest{Do: "release"}); err != nil {
		return fmt.Errorf("heal hung task: %w", err)
	}
	if err := h.waiter.finish(ctx); err != nil {
		return fmt.Errorf("heal hung task: %w", err)
	}
	return nil
}

// Close ends both processes, which heals the fault too.
func (h *HungTask) Close() error {
	h.holder.stop() // first: the waiter can't exit before
	h.waiter.stop()
	return nil
}

// writer is a child that hangs in a write to a file. Not safe for concurrent use.
type writer struct {
	*child
	task Task
	owes bool // whether the reply to its write is outstanding
}

type hangRequest struct {
	Do string `json:"do"`
}

// startWriter starts a writer named comm in the v2 cgroup of a directory; empty: this process's
// cgroup.
func startWriter(ctx context.Context, comm string, file *os.File, cgroup string) (w writer, err error) {
	if w.child, err = startChild("writer", childOptions{files: []*os.File{file}, cgroup: cgroup}, comm); err == nil {
		w.task, err = ask[Task](ctx, w.child, hangRequest{Do: "name"})
	}
	return w, err
}

// hang returns once the writer hangs in its write.
func (w *writer) hang(ctx context.Context) error {
	if err := w.send(hangRequest{Do: "write"}); err != nil {
		return err
	}
	w.owes = true
	return w.task.waitHang(ctx)
}

// finish returns once the writer has written.
func (w *writer) finish(ctx context.Context) error {
	if !w.owes {
		return nil
	}
	w.owes = false
	_, err := receive[Task](ctx, w.child)
	return err
}

// runWriter writes to the file on fd 3.
func runWriter(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: writer NAME")
	}
	task, err := setComm(args[0])
	if err != nil {
		return err
	}
	return serve(func(q hangRequest) (Task, error) {
		if q.Do == "write" {
			// A plain system call, so that it is this thread that hangs.
			if _, err := unix.Write(3, []byte{1}); err != nil {
				return task, fmt.Errorf("write: %w", err)
			}
		}
		return task, nil
	})
}

// hangHolder reads from the pipe on fd 3 into a page that userfaultfd guards.
func hangHolder(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: hang-holder LIMIT")
	}
	limit, err := time.ParseDuration(args[0])
	if err != nil {
		return fmt.Errorf("hang-holder: %w", err)
	}
	if err := os.WriteFile("/proc/self/comm", []byte("kn-hang-holder"), 0); err != nil {
		return fmt.Errorf("hang-holder: %w", err)
	}
	page, err := newFaultPage()
	if err != nil {
		return fmt.Errorf("hang-holder: %w", err)
	}
	time.AfterFunc(limit, func() { _ = page.fill() })
	return serve(func(q hangRequest) (Task, error) {
		switch q.Do {
		case "release":
			return Task{}, page.fill()
		case "hold":
		default:
			return Task{}, fmt.Errorf("unknown request %q", q.Do)
		}
		holder := make(chan Task)
		go func() {
			task, _ := setComm("kn-hang-holder")
			// A pending signal would turn the sleep in the fault into a busy loop
			// (it is interruptible, but an access by the kernel is retried).
			all := unix.Sigset_t{}
			for i := range all.Val {
				all.Val[i] = ^all.Val[i]
			}
			_ = unix.PthreadSigmask(unix.SIG_BLOCK, &all, nil)
			holder <- task
			_, _, _ = unix.Syscall(unix.SYS_READ, 3, uintptr(unsafe.Pointer(&page.mem[0])), 1)
			select {} // keeps the locked thread for the process's short life
		}()
		task := <-holder
		return task, page.waitFault()
	})
}
