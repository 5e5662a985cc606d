package hostfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/kernosis/kernosis/collector/display"
)

// OpenFile is an open file of a process.
type OpenFile struct {
	FD      int
	Target  string // raw: a path as the process sees it, "socket:[4711]", "anon_inode:[eventpoll]" …
	Deleted bool   // the file was deleted
}

// OpenFiles returns the first limit open files of a process, ordered by number, and the total
// count. It makes no filesystem call on the files, so a dead server can't block it. It needs the
// same permission as ptrace.
func (f FS) OpenFiles(pid, limit int) (files []OpenFile, count int, err error) {
	fds, err := f.numbers(procPath(pid, "fd"), -1)
	if err != nil {
		return nil, 0, err
	}
	slices.Sort(fds)
	closed := 0
	for _, fd := range fds[:min(len(fds), limit)] {
		switch file, err := f.OpenFile(pid, fd); {
		case err == nil:
			files = append(files, file)
		case errors.Is(err, fs.ErrNotExist):
			closed++ // meanwhile
		}
	}
	return files, len(fds) - closed, nil
}

// OpenFile returns one open file of a process.
func (f FS) OpenFile(pid, fd int) (OpenFile, error) {
	target, err := os.Readlink(f.Path(procPath(pid, "fd/"+strconv.Itoa(fd))))
	if err != nil {
		return OpenFile{}, err
	}
	name, deleted := strings.CutSuffix(target, " (deleted)")
	if !strings.HasPrefix(target, "/") {
		name, deleted = target, false
	}
	return OpenFile{FD: fd, Target: name, Deleted: deleted}, nil
}

// FileMount returns the mount of a process' open file, in the process' own mount namespace. It
// makes no filesystem call on the file.
func (f FS) FileMount(pid, fd int) (Mount, error) {
	id, err := parsed(f, procPath(pid, "fdinfo/"+strconv.Itoa(fd)), statusFile, parseMountID)
	if err != nil {
		return Mount{}, err
	}
	mounts, err := mountsIn(f.Path(procPath(pid, "mountinfo")))
	if err != nil {
		return Mount{}, err
	}
	for _, m := range mounts {
		if m.ID == id {
			return m, nil
		}
	}
	// A pipe or socket, which is mounted nowhere, or a mount that was detached since.
	return Mount{}, fmt.Errorf("file %d of process %d is on none of its mounts: %w", fd, pid, os.ErrNotExist)
}

func parseMountID(info string) (int, error) {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, "mnt_id:"); ok {
			id, err := strconv.ParseUint(strings.TrimSpace(value), 10, 31)
			if err != nil {
				return 0, fmt.Errorf("fdinfo: mnt_id: %w", err)
			}
			return int(id), nil
		}
	}
	return 0, fmt.Errorf("fdinfo: no mnt_id: %w", errSyntax)
}

// Shown returns the file's target, safe for display.
func (o *OpenFile) Shown() string { return display.Safe(o.Target, maxShownPath) }
