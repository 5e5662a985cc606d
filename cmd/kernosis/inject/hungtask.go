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

// HungTask makes a task hang on a lock that another task holds, without module or filesystem: the
// holder reads from a pipe into a page registered with userfaultfd, so it sleeps in the page fault
// with the pipe's mutex held; the waiter writes to the same pipe. The fault ends when the page is
// filled in: by Heal, after Limit, or by the holder's end.
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
	defer func() { ending(&err, "hang a task", h.Close) }()
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
	if hang.Holder, err = ask[Task](ctx, h.holder, "hold"); err != nil {
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
	if _, err := ask[Task](ctx, h.holder, "release"); err != nil {
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

// startWriter starts a writer named comm in the v2 cgroup of a directory; empty: this process's
// cgroup.
func startWriter(ctx context.Context, comm string, file *os.File, cgroup string) (w writer, err error) {
	if w.child, err = startChild("writer", childOptions{files: []*os.File{file}, cgroup: cgroup}, comm); err == nil {
		w.task, err = ask[Task](ctx, w.child, "name")
	}
	return w, err
}

func (w *writer) hang(ctx context.Context) error {
	if err := w.send("write"); err != nil {
		return err
	}
	w.owes = true
	return w.task.waitHang(ctx)
}

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
	task, err := setComm(args[0])
	if err != nil {
		return err
	}
	return serve(func(do string) (Task, error) {
		if do == "write" {
			// A plain system call, so that this thread hangs.
			if _, err := unix.Write(3, []byte{1}); err != nil {
				return task, fmt.Errorf("write: %w", err)
			}
		}
		return task, nil
	})
}

// hangHolder reads from the pipe on fd 3 into a page that userfaultfd guards.
func hangHolder(args []string) error {
	limit, _ := time.ParseDuration(args[0]) // as Start has formatted it
	if err := os.WriteFile("/proc/self/comm", []byte("kn-hang-holder"), 0); err != nil {
		return fmt.Errorf("hang-holder: %w", err)
	}
	page, err := newFaultPage()
	if err != nil {
		return fmt.Errorf("hang-holder: %w", err)
	}
	time.AfterFunc(limit, func() { _ = page.fill() })
	return serve(func(do string) (Task, error) {
		switch do {
		case "release":
			return Task{}, page.fill()
		case "hold":
		default:
			return Task{}, fmt.Errorf("unknown request %q", do)
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

// From include/uapi/linux/userfaultfd.h. The numbers are the same on all
// architectures with the generic ioctl encoding (amd64, arm64, riscv64, …).
const (
	uffdAPI             = 0xaa
	uffdioAPI           = 0xc018aa3f
	uffdioRegister      = 0xc020aa00
	uffdioZeropage      = 0xc020aa04
	uffdRegisterMissing = 1
	uffdEventPagefault  = 0x12
)

type uffdioAPIArg struct{ api, features, ioctls uint64 }

type uffdioRegisterArg struct{ start, len, mode, ioctls uint64 }

type uffdioZeropageArg struct {
	start, len, mode uint64
	zeropage         int64
}

// faultPage is a page of memory whose first access blocks until it is filled.
type faultPage struct {
	fd  int
	mem []byte
}

// openUserfaultfd opens a userfaultfd that also handles page faults in kernel mode.
func openUserfaultfd() (int, error) {
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC, 0, 0)
	if errno != 0 {
		return -1, fmt.Errorf("open userfaultfd: %w", errno)
	}
	api := uffdioAPIArg{api: uffdAPI}
	if err := uffdIoctl(int(fd), uffdioAPI, unsafe.Pointer(&api)); err != nil {
		_ = unix.Close(int(fd))
		return -1, fmt.Errorf("open userfaultfd: handshake: %w", err)
	}
	return int(fd), nil
}

func uffdIoctl(fd int, request uintptr, arg unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(arg)); errno != 0 {
		return errno
	}
	return nil
}

func newFaultPage() (*faultPage, error) {
	fd, err := openUserfaultfd()
	if err != nil {
		return nil, err
	}
	mem, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("map page: %w", err)
	}
	p := &faultPage{fd: fd, mem: mem}
	reg := uffdioRegisterArg{start: p.addr(), len: uint64(len(mem)), mode: uffdRegisterMissing}
	if err := uffdIoctl(fd, uffdioRegister, unsafe.Pointer(&reg)); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("register page with userfaultfd: %w", err)
	}
	return p, nil
}

func (p *faultPage) addr() uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(p.mem)))) }

// waitFault returns once a task sleeps in an access to the page.
func (p *faultPage) waitFault() error {
	var msg [32]byte
	if n, err := unix.Read(p.fd, msg[:]); err != nil {
		return fmt.Errorf("wait for page fault: %w", err)
	} else if n != len(msg) || msg[0] != uffdEventPagefault {
		return fmt.Errorf("wait for page fault: unexpected event %#x", msg[0])
	}
	return nil
}

// fill puts a zero page in place, which ends the access. Safe to call from
// several goroutines, and again.
func (p *faultPage) fill() error {
	arg := uffdioZeropageArg{start: p.addr(), len: uint64(len(p.mem))}
	err := uffdIoctl(p.fd, uffdioZeropage, unsafe.Pointer(&arg))
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("fill page: %w", err)
	}
	return nil
}
