package file

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/hostfs"
)

// errNotRegular: what is read from a device or a pipe can't be read again.
var errNotRegular = errors.New("not a regular file")

// tree is the host's file system, in which links lead where they do on the host; zero: the real root.
type tree struct{ fs hostfs.FS }

// found is an open file and its path.
type found struct {
	f    *os.File
	name string // path on the real root, without symbolic links
	stat fileStat
}

// closeFile closes a file that was only read. f may be nil.
func closeFile(f *os.File) {
	if f != nil {
		_ = f.Close()
	}
}

// head returns the file's first bytes, or nil if there is no file or it can't be read.
func (f found) head() []byte {
	if f.f == nil {
		return nil
	}
	head, err := readHead(f.f)
	if err != nil {
		return nil
	}
	return head
}

// open opens the file that path leads to.
func (t tree) open(path string) (found, error) {
	for range 100 {
		f, err := t.openOnce(path)
		if err != nil {
			return found{}, err
		}
		// If the file was renamed before its name was read, the name is already the new one.
		if now, err := t.stat(path); err == nil && now.sameFile(f.stat) {
			return f, nil
		}
		closeFile(f.f)
	}
	return found{}, &fs.PathError{Op: "open", Path: path, Err: errors.New("it keeps being replaced")}
}

func (t tree) openOnce(path string) (found, error) {
	fd, err := t.fs.Resolve(path)
	if err != nil {
		return found{}, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	st, err := statFD(fd)
	if err != nil {
		return found{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	// Opening it through its descriptor makes sure that it is the file checked above.
	self := "/proc/self/fd/" + strconv.Itoa(fd)
	name, err := os.Readlink(self)
	if err != nil {
		return found{}, err
	}
	f, err := os.OpenFile(self, os.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return found{}, &fs.PathError{Op: "open", Path: path, Err: errors.Unwrap(err)}
	}
	return found{f: f, name: name, stat: st}, nil
}

// stat returns the state of the file that path leads to.
func (t tree) stat(path string) (fileStat, error) {
	fd, err := t.fs.Resolve(path)
	if err != nil {
		return fileStat{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	defer unix.Close(fd)
	st, err := statFD(fd)
	if err != nil {
		return fileStat{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return st, nil
}

// below returns the real path of path, without following links.
func (t tree) below(path string) string {
	if t.fs.IsRoot() {
		return filepath.Clean(path) // may be relative
	}
	return t.fs.Path(path)
}

// fileStat identifies a file, and shows when it was written.
type fileStat struct {
	dev, ino uint64
	size     int64
	links    uint64
	modified int64 // ns since 1970
}

func (a fileStat) sameFile(b fileStat) bool { return a.dev == b.dev && a.ino == b.ino }

func statFD(fd int) (fileStat, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fileStat{}, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return fileStat{}, errNotRegular
	}
	//nolint:unconvert // the fields' types differ between architectures
	return fileStat{dev: uint64(st.Dev), ino: st.Ino, size: st.Size, links: uint64(st.Nlink), modified: st.Mtim.Nano()}, nil
}

// stat returns the state of an open file.
func stat(f *os.File) (fileStat, error) { return statFD(int(f.Fd())) }
