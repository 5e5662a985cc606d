package ingest

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/hostfs"
)

// Peer is who reports.
type Peer struct {
	UID uint32
	// Foreign says why it does not count as a process of this machine or of the agent's own
	// pod; empty: it does. Root of a container has the user id of the machine's root.
	Foreign string
}

// peers distinguishes processes of this machine and of the agent's own pod from those of other
// containers.
type peers struct {
	fs  hostfs.FS
	own string // the agent's own pod; see podOf
}

func newPeers(fs hostfs.FS) (*peers, error) {
	own, err := fs.ProcCgroups(os.Getpid())
	if errors.Is(err, os.ErrNotExist) {
		// The host's /proc does not have this process by its number here: what connects has
		// none there either.
		own, err = hostfs.New("/").ProcCgroups(os.Getpid())
	}
	if err != nil {
		return nil, fmt.Errorf("control groups of the agent: %w", err)
	}
	return &peers{fs: fs, own: podOf(own)}, nil
}

// podOf finds the UID of a process' pod by its control groups, or for a container of none the
// container's ID; empty: it is a process of the machine.
func podOf(groups []hostfs.ProcCgroup) (pod string) {
	for _, g := range groups {
		a, ok := hostfs.ParseCgroupPath(g.Path)
		if !ok {
			continue
		}
		if c := a.Container; c.PodUID != "" {
			return c.PodUID
		} else if c.ID != "" && pod == "" {
			pod = c.ID
		}
	}
	return pod
}

// of returns who has connected, as the kernel knows it.
func (p *peers) of(conn *net.UnixConn) (Peer, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return Peer{}, err
	}
	var cred *unix.Ucred
	var credErr error
	pidfd := -1
	if err := raw.Control(func(fd uintptr) {
		if cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); credErr != nil {
			return
		}
		// Kernels from 6.5: its number may be another process' by now.
		if n, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PEERPIDFD); err == nil {
			pidfd = n
		}
	}); err != nil {
		return Peer{}, err
	}
	if credErr != nil {
		return Peer{}, fmt.Errorf("peer credentials: %w", credErr)
	}
	peer := Peer{UID: cred.Uid, Foreign: p.foreign(int(cred.Pid))}
	if pidfd >= 0 {
		if peer.Foreign == "" && unix.PidfdSendSignal(pidfd, 0, nil, 0) == unix.ESRCH {
			peer.Foreign = "its process has ended"
		}
		_ = unix.Close(pidfd)
	}
	return peer, nil
}

func (p *peers) foreign(pid int) string {
	if pid == 0 {
		return "its process is not visible to the agent (hostPID)"
	}
	groups, err := p.fs.ProcCgroups(pid)
	if err != nil {
		return "the control groups of its process can't be read"
	}
	if pod := podOf(groups); pod != "" && pod != p.own {
		return "it is a process of another pod or container"
	}
	return ""
}
