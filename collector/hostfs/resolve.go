package hostfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Resolve opens what p leads to on the node, with O_PATH, which never blocks. Absolute symbolic
// links, and "..", stay below the root; with the result of [FS.Path] they would leave it.
func (f FS) Resolve(p string) (fd int, err error) {
	if f.root == "" {
		return unix.Open(p, unix.O_PATH|unix.O_CLOEXEC, 0)
	}
	root, err := unix.Open(f.root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("root %s: %w", f.root, err)
	}
	defer unix.Close(root)
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	const tries = 100
	for range tries {
		// A rename or mount at the same time makes ".." fail with EAGAIN.
		if fd, err = unix.Openat2(root, p, &how); !errors.Is(err, unix.EAGAIN) {
			break
		}
	}
	return fd, err
}

// RealPath returns the path, in this process, of what p leads to on the node, like [FS.Resolve].
func (f FS) RealPath(p string) (string, error) {
	fd, err := f.Resolve(p)
	if err != nil {
		return "", &os.PathError{Op: "resolve", Path: f.Path(p), Err: err}
	}
	defer unix.Close(fd)
	return os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
}

// Open opens the file or folder that p leads to on the node, like [FS.Resolve], for reading. It
// does not block on a named pipe.
func (f FS) Open(p string) (*os.File, error) {
	fd, err := f.Resolve(p)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: f.Path(p), Err: err}
	}
	defer unix.Close(fd)
	file, err := os.OpenFile("/proc/self/fd/"+strconv.Itoa(fd), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: f.Path(p), Err: errors.Unwrap(err)}
	}
	return file, nil
}

// ReadFile returns at most the first limit bytes of the file that p leads to on the node, like
// [FS.Resolve].
func (f FS) ReadFile(p string, limit int64) ([]byte, error) {
	file, err := f.Open(p)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, limit))
}
