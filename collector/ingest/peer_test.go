package ingest

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/hostfs"
)

// A process of the machine may by now have the number of a peer that has ended.
func TestPeerThatHasEnded(t *testing.T) {
	dir := folder(t)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "report.sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asClient+"="+l.Addr().String())
	cmd.Stdin = strings.NewReader("{}")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	conn, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	proc := filepath.Join(dir, "proc", strconv.Itoa(cmd.Process.Pid))
	if err := errors.Join(os.MkdirAll(proc, 0o755), os.WriteFile(filepath.Join(proc, "cgroup"), []byte("0::/system.slice/a.service\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	p := peers{fs: hostfs.New(dir)}
	if peer, err := p.of(conn); err != nil || peer.Foreign != "" {
		t.Errorf("while it runs: %+v, %v", peer, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	peer, err := p.of(conn)
	if err != nil {
		t.Fatal(err)
	}
	if want := "its process has ended"; peer.Foreign != want {
		if !peerPidfd(t, conn) {
			t.Skip("the kernel has no SO_PEERPIDFD, which came with 6.5")
		}
		t.Errorf("foreign: %q, want %q", peer.Foreign, want)
	}
}

// peerPidfd reports whether the kernel has the option.
func peerPidfd(t *testing.T, conn *net.UnixConn) bool {
	t.Helper()
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var gotErr error
	if err := raw.Control(func(fd uintptr) {
		var pidfd int
		if pidfd, gotErr = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PEERPIDFD); gotErr == nil {
			_ = unix.Close(pidfd)
		}
	}); err != nil {
		t.Fatal(err)
	}
	return !errors.Is(gotErr, unix.ENOPROTOOPT)
}

// The errors with which kernels answer SO_PEERPIDFD.
func TestPeerWithoutPidfd(t *testing.T) {
	for err, want := range map[error]bool{
		unix.ENOPROTOOPT: false, // before 6.5
		unix.EINVAL:      true,  // 6.5 to 6.15, if the process was reaped
		unix.ESRCH:       true,
		unix.ENODATA:     true,
	} {
		if got := ended(-1, err); got != want {
			t.Errorf("%v: ended %t, want %t", err, got, want)
		}
	}
}
