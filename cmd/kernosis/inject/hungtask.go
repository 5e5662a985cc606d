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
	Holder Task // zero where no task holds what the waiter wants
}

// HungTask makes a task hang on a lock that another task holds, without module
// or filesystem: the holder reads from a pipe into a page registered with
// userfaultfd, so it sleeps in the page fault with the pipe's mutex held; the
// waiter writes to the same pipe. The fault ends when the page is filled in: by
// Heal, after Limit, or by the holder's end. Its fields are set before Start.
// Not safe for concurrent use.
type HungTask struct {
	Limit  time.Duration // the holder lets go by itself then; 0 for DefaultLimit
	Cgroup string        // directory of a v2 cgroup that the waiter is started in; empty: this process's

	hang           Hang
	holder, waiter *child
	asked          bool // the waiter owes the reply to its write
}

type hangRequest struct {
	Do string `json:"do"`
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
	if h.hang.Holder, err = ask[Task](ctx, h.holder, hangRequest{Do: "hold"}); err != nil {
		return Hang{}, err
	}
	if h.waiter, err = startChild("hang-waiter", childOptions{files: []*os.File{w}, cgroup: h.Cgroup}); err != nil {
		return Hang{}, err
	}
	if h.hang.Waiter, err = ask[Task](ctx, h.waiter, hangRequest{Do: "name"}); err != nil {
		return Hang{}, err
	}
	if err = h.waiter.send(hangRequest{Do: "write"}); err != nil {
		return Hang{}, err
	}
	h.asked = true
	if err = h.hang.Waiter.waitHang(ctx); err != nil {
		return Hang{}, err
	}
	return h.hang, nil
}

// Heal lets the holder go on and returns once the waiter has written.
func (h *HungTask) Heal(ctx context.Context) error {
	if _, err := ask[Task](ctx, h.holder, hangRequest{Do: "release"}); err != nil {
		return fmt.Errorf("heal hung task: %w", err)
	}
	if h.asked {
		h.asked = false
		if _, err := receive[Task](ctx, h.waiter); err != nil {
			return fmt.Errorf("heal hung task: %w", err)
		}
	}
	return nil
}

// Close ends both processes, which heals the fault too.
func (h *HungTask) Close() error {
	h.holder.stop() // first: the waiter can't leave before
	h.waiter.stop()
	return nil
}

// hangWaiter writes to the pipe on fd 3.
func hangWaiter([]string) error {
	task, err := setComm("kn-hang-waiter")
	if err != nil {
		return err
	}
	return serve(func(q hangRequest) (Task, error) {
		if q.Do == "write" {
			// A plain system call, so that it is this thread that hangs.
			if _, err := unix.Write(3, []byte{1}); err != nil {
				return task, fmt.Errorf("write to pipe: %w", err)
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
