package selfcheck

import (
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// capset sets the capabilities of each thread: a header without a pid applies to the calling
// thread.
func capset(header *unix.CapUserHeader, data *[2]unix.CapUserData) error {
	header.Pid = 0
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(header)), uintptr(unsafe.Pointer(data)), 0)
	runtime.KeepAlive(header)
	runtime.KeepAlive(data)
	return ofThreads(errno)
}
