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
)

// smallFile bounds the read of a file with a value or a few lines. Most files of /proc and /sys
// never return more than a page.
const smallFile = 4 << 10

// statusFile bounds /proc/PID/status, whose group list may have 65,536 ids.
const statusFile = 1 << 20

// largeFile bounds the read of a table (mountinfo of a node with thousands of
// mounts is a few hundred KiB).
const largeFile = 16 << 20

// ErrPath is returned for a relative name that leaves its tree, or whose top is missing, so that it
// identifies nothing.
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
