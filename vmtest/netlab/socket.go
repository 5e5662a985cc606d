package netlab

import (
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// socket returns a non-blocking TCP socket.
func socket(of netip.Addr) (fd int, err error) {
	family := unix.AF_INET6
	if of.Is4() {
		family = unix.AF_INET
	}
	fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_TCP)
	return fd, os.NewSyscallError("socket", err)
}

func sockaddr(ap netip.AddrPort) unix.Sockaddr {
	if ap.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(ap.Port()), Addr: ap.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(ap.Port()), Addr: ap.Addr().As16()}
}
