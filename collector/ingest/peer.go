package ingest

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/hostfs"
)

// Peer is the sender of a report.
type Peer struct {
	UID uint32
	// Foreign says why the process does not belong to this machine or to the agent's own pod; empty if it
	// does. The user id is not enough, because root in a container has the user id of the machine's root.
	Foreign string
}

// peers distinguishes processes of this machine and of the agent's own pod from those of other containers.
type peers struct {
	fs  hostfs.FS
	own string // the agent's own pod; see podOf
}

func newPeers(fs hostfs.FS) (*peers, error) {
	own, err := fs.ProcCgroups(os.Getpid())
	if errors.Is(err, os.ErrNotExist) {
		// The host's /proc does not have this process under the number that it has here. The same
		// is true for the processes that connect.
		own, err = hostfs.New("/").ProcCgroups(os.Getpid())
	}
	if err != nil {
		return nil, fmt.Errorf("control groups of the agent: %w", err)
	}
	return &peers{fs: fs, own: podOf(own)}, nil
}

// podOf returns the UID of a process' pod according to its control groups, or, if its container
// belongs to no pod, the container's ID; empty for a process of the machine.
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

// of returns the peer of a connection, as the kernel reports it.
func (p *peers) of(conn *net.UnixConn) (Peer, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return Peer{}, err
	}
	var cred *unix.Ucred
	var credErr, pidfdErr error
	pidfd := -1
	if err := raw.Control(func(fd uintptr) {
		if cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); credErr != nil {
			return
		}
		pidfd, pidfdErr = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	}); err != nil {
		return Peer{}, err
	}
	if credErr != nil {
		return Peer{}, fmt.Errorf("peer credentials: %w", credErr)
	}
	peer := Peer{UID: cred.Uid, Foreign: p.foreign(int(cred.Pid))}
	if pidfdErr == nil {
		defer unix.Close(pidfd)
	}
	if peer.Foreign == "" && ended(pidfd, pidfdErr) {
		peer.Foreign = "its process has ended"
	}
	return peer, nil
}

// ended reports whether a peer's process has ended. Its number may then belong to another process. It
// takes the result of SO_PEERPIDFD, which kernels have since 6.5.
func ended(pidfd int, err error) bool {
	if err != nil {
		// Up to 6.15 a reaped process has no pidfd: EINVAL or ESRCH.
		return !errors.Is(err, unix.ENOPROTOOPT)
	}
	return unix.PidfdSendSignal(pidfd, 0, nil, 0) == unix.ESRCH
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
