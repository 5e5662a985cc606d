package ingest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
)

// maxSocketPath is the longest path that fits into sockaddr_un with its terminator; see unix(7).
const maxSocketPath = 107

// openSocket listens at path. The file appears there with its final mode, because it is created
// beside it and renamed. An existing socket is replaced if nobody answers there.
func openSocket(path string, mode fs.FileMode) (*net.UnixListener, fs.FileInfo, error) {
	if !filepath.IsAbs(path) {
		return nil, nil, fmt.Errorf("%s is not absolute", path)
	}
	making := fmt.Sprintf("%s.%d", path, os.Getpid())
	if len(making) > maxSocketPath {
		return nil, nil, fmt.Errorf("%s: a socket's path has at most %d bytes", path, maxSocketPath-len(making)+len(path))
	}
	if err := makeFolder(filepath.Dir(path)); err != nil {
		return nil, nil, err
	}
	if err := vacant(path); err != nil {
		return nil, nil, err
	}
	if err := os.Remove(making); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: making, Net: "unix"})
	if err != nil {
		return nil, nil, err
	}
	l.SetUnlinkOnClose(false) // the socket was renamed
	var info fs.FileInfo
	if err = os.Chmod(making, mode); err == nil {
		err = os.Rename(making, path)
	}
	if err == nil {
		info, err = os.Lstat(path)
	}
	if err != nil {
		_ = l.Close()
		_ = os.Remove(making)
		return nil, nil, err
	}
	return l, info, nil
}

// makeFolder creates the socket's folder, and refuses one in which others could replace the socket.
func makeFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return fmt.Errorf("%s is not a folder", dir)
	case ok && owner.Uid != 0 && owner.Uid != uint32(os.Geteuid()):
		return fmt.Errorf("folder %s belongs to user %d", dir, owner.Uid)
	case info.Mode().Perm()&0o022 != 0 && info.Mode()&fs.ModeSticky == 0:
		return fmt.Errorf("folder %s is writable by others (mode %v)", dir, info.Mode().Perm())
	}
	return nil
}

// vacant returns an error if no socket may be created at path.
func vacant(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s exists and is not a socket: it is not replaced", path)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		_ = conn.Close()
		return fmt.Errorf("%s: another process listens there", path)
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ENOENT):
		return nil // left behind by a process that was killed
	}
	return fmt.Errorf("%s: can't determine whether a process listens there: %w", path, err)
}

// Bounds of connections: a daemon needs one.
const (
	maxConnsPerUser = 16
	maxConnsOfRest  = 4 // of all users together that may not report
)

// peerListener accepts connections with their peers, a limited number per user.
type peerListener struct {
	*net.UnixListener
	path    string
	info    fs.FileInfo // of our socket
	peers   *peers
	allowed map[uint32]bool

	refused prometheus.Counter

	mu     sync.Mutex
	open   map[uint32]int // connections by user; those of unknown users are counted under stranger
	closed sync.Once
}

// stranger stands for all users that may not report; nobody can have (uid_t)-1.
const stranger = ^uint32(0)

// peerConn is a connection with its peer.
type peerConn struct {
	*net.UnixConn
	peer    Peer
	release func()
}

// Close closes the connection and frees its place.
func (c *peerConn) Close() error {
	c.release()
	return c.UnixConn.Close()
}

// Accept returns the next connection whose user does not have too many.
func (l *peerListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		peer, err := l.peers.of(conn)
		if err != nil || !l.admit(peer.UID) {
			l.refused.Inc()
			_ = conn.Close()
			continue
		}
		return &peerConn{UnixConn: conn, peer: peer, release: sync.OnceFunc(func() { l.leave(peer.UID) })}, nil
	}
}

func (l *peerListener) class(uid uint32) (user uint32, most int) {
	if l.allowed[uid] {
		return uid, maxConnsPerUser
	}
	return stranger, maxConnsOfRest
}

func (l *peerListener) admit(uid uint32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	user, most := l.class(uid)
	if l.open[user] >= most {
		return false
	}
	l.open[user]++
	return true
}

func (l *peerListener) leave(uid uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	user, _ := l.class(uid)
	l.open[user]--
}

// Close stops listening and removes the socket if it is still ours. It may be called again.
func (l *peerListener) Close() error {
	var err error
	l.closed.Do(func() {
		if info, statErr := os.Lstat(l.path); statErr == nil && os.SameFile(info, l.info) {
			err = os.Remove(l.path)
		}
		err = errors.Join(err, l.UnixListener.Close())
	})
	return err
}
