package inject

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

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
