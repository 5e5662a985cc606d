package hostfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Bounds of what is read of a file.
const (
	smallFile  = 4 << 10  // a value or a few lines: most files of /proc and /sys return at most a page
	statusFile = 1 << 20  // /proc/PID/status, whose group list may have 65,536 ids
	largeFile  = 16 << 20 // a table: mountinfo of a node with thousands of mounts is a few hundred KiB
)

// ErrPath is returned for a relative name that leaves its tree, or whose top is unknown.
var ErrPath = errors.New("not a path below its tree")

// FS is a view of the node's filesystems below a root. The zero FS is the real
// root. It holds no resources and may be copied and used concurrently.
type FS struct {
	_    [0]func() // not comparable: two with the same root have different caches
	root string
	// namespace caches the result of cgroupNamespace; nil: no cache.
	namespace *atomic.Pointer[string]
}

// New returns the FS below root; "" and "/" are the real root.
func New(root string) FS {
	f := FS{namespace: new(atomic.Pointer[string])}
	if root != "" && filepath.Clean(root) != "/" {
		f.root = filepath.Clean(root)
	}
	return f
}

// IsRoot reports whether the root is the real root.
func (f FS) IsRoot() bool { return f.root == "" }

// Path returns the path at which the node's path p ("/proc/1/stat") can be opened.
func (f FS) Path(p string) string {
	return f.root + filepath.Clean("/"+p)
}

// read returns the whole content of a file. A file of more than limit bytes is an error, because a
// part of it may parse as something else.
func (f FS) read(p string, limit int64) (string, error) {
	b, err := f.readCut(p, limit+1)
	if err != nil {
		return "", err
	}
	if int64(len(b)) > limit {
		return "", fmt.Errorf("read %s: more than %d bytes", f.Path(p), limit)
	}
	return string(b), nil
}

// readCut returns at most the first limit bytes of a file.
func (f FS) readCut(p string, limit int64) ([]byte, error) {
	file, err := os.Open(f.Path(p))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, limit))
}

// readValue returns the only line of a small file, without white space around it.
func (f FS) readValue(p string) (string, error) {
	s, err := f.read(p, smallFile)
	return strings.TrimSpace(s), err
}

// readUint reads a file that holds one decimal number.
func (f FS) readUint(p string) (uint64, error) {
	s, err := f.readValue(p)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("parse %s: %w", f.Path(p), err)
	}
	return n, nil
}

// parsed returns what parse makes of a file of at most limit bytes.
func parsed[T any](f FS, p string, limit int64, parse func(string) (T, error)) (T, error) {
	s, err := f.read(p, limit)
	if err != nil {
		var none T
		return none, err
	}
	return parse(s)
}

// numbers returns the names in a directory that are numbers, at most limit (-1: all), unsorted.
func (f FS) numbers(p string, limit int) ([]int, error) {
	dir, err := os.Open(f.Path(p))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(limit)
	if err != nil {
		return nil, err
	}
	numbers := make([]int, 0, len(names))
	for _, name := range names {
		if n, err := strconv.ParseUint(name, 10, 31); err == nil {
			numbers = append(numbers, int(n))
		}
	}
	return numbers, nil
}

// exists reports whether the node has p, of whatever type.
func (f FS) exists(p string) bool {
	_, err := os.Lstat(f.Path(p))
	return err == nil
}

// below returns rel with exactly one leading slash. It returns ErrPath if rel has a component that
// would leave the tree it is joined to.
func below(rel string) (string, error) {
	if strings.HasPrefix(rel, cutTop) || strings.IndexByte(rel, 0) >= 0 {
		return "", ErrPath
	}
	for c := range strings.SplitSeq(rel, "/") {
		if c == ".." {
			return "", ErrPath
		}
	}
	return filepath.Clean("/" + rel), nil
}

// procPath returns the path of a process' file.
func procPath(pid int, file string) string {
	return "/proc/" + strconv.Itoa(pid) + "/" + file
}

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

// Open opens the file or folder that p leads to, like [FS.Resolve]. It does not block on a pipe.
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

// ReadFile returns at most the first limit bytes of the file that p leads to; see [FS.Resolve].
func (f FS) ReadFile(p string, limit int64) ([]byte, error) {
	file, err := f.Open(p)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, limit))
}
