package crash

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/hostfs"
)

const (
	// maxFiles is how many files are read: efi stores a panic in about ten.
	maxFiles = 64
	// maxSize is how much of a file's end is read; pstore keeps 10 KiB by default.
	maxSize = 256 << 10
	// maxEntries bounds the listing of a folder.
	maxEntries = 4096
)

// folder is where records are kept on the node.
type folder struct {
	path     string
	within   string   // exists on each node: if it is not below the host's root, that is a part of the node
	prefixes []string // of the names of records
	depth    int      // of subfolders
}

func folders() []folder {
	return []folder{
		{"/sys/fs/pstore", "/sys/fs", []string{"dmesg-"}, 0},
		{"/var/lib/systemd/pstore", "/var/lib", []string{"dmesg-"}, 2},
		{"/var/crash", "/var", []string{"dmesg.", "vmcore-dmesg"}, 1},
	}
}

// Check returns why records can't be read, as an [*fs.PathError]. A missing folder is not an error.
func Check(host hostfs.FS) error {
	for _, d := range folders() {
		d.prefixes, d.depth = nil, 0
		if _, err := d.list(host); err != nil {
			return err
		}
	}
	return nil
}

// file is a record, or a part of one.
type file struct {
	path     string
	modified time.Time
	size     int64
}

// list returns the files in the folder, as far as it can be read.
func (d folder) list(host hostfs.FS) ([]file, error) {
	files, err := d.below(host, d.path, d.depth)
	if !errors.Is(err, fs.ErrNotExist) {
		return files, err
	}
	if host.IsRoot() {
		return nil, nil
	}
	_, err = os.Stat(host.Path(d.within))
	return nil, err
}

func (d folder) below(host hostfs.FS, dir string, depth int) (files []file, err error) {
	f, err := host.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := f.ReadDir(maxEntries)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, &fs.PathError{Op: "list", Path: host.Path(dir), Err: errors.Unwrap(err)}
	}
	var errs []error
	for _, e := range entries {
		p := path.Join(dir, e.Name())
		record := e.Type().IsRegular() && slices.ContainsFunc(d.prefixes, func(prefix string) bool { return strings.HasPrefix(e.Name(), prefix) })
		if !record && (!e.IsDir() || depth == 0) {
			continue
		}
		found, trusted, err := stat(host, p)
		switch {
		case errors.Is(err, fs.ErrNotExist): // moved in the meantime
		case err != nil:
			errs = append(errs, err)
		case !trusted:
		case record:
			files = append(files, found)
		default:
			more, err := d.below(host, p, depth-1)
			files = append(files, more...)
			if !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return files, errors.Join(errs...)
}

// stat returns the state of a file, and whether it can be trusted: it is root's, or this process's.
func stat(host hostfs.FS, p string) (f file, trusted bool, err error) {
	fd, err := host.Resolve(p)
	if err != nil {
		return file{}, false, &fs.PathError{Op: "open", Path: host.Path(p), Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return file{}, false, &fs.PathError{Op: "stat", Path: host.Path(p), Err: err}
	}
	return file{path: p, modified: time.Unix(st.Mtim.Unix()).UTC(), size: st.Size}, st.Uid == 0 || int(st.Uid) == os.Geteuid(), nil
}

// look is what a look at the folders found.
type look struct {
	files []file // newest first; nil if one can't be read: the next look reads them again
	more  int    // files beyond maxFiles, which are not read
	parts []part // contents of the files; nil if they are as at the last look
	err   error  // why a folder or file can't be read
}

// find looks for records that were written after since. before are the files of the last look.
func find(host hostfs.FS, since time.Time, before []file) (l look) {
	var errs []error
	for _, d := range folders() {
		files, err := d.list(host)
		l.files, errs = append(l.files, files...), append(errs, err)
	}
	l.files = slices.DeleteFunc(l.files, func(f file) bool { return f.modified.Before(since) })
	slices.SortFunc(l.files, func(a, b file) int { return cmp.Or(b.modified.Compare(a.modified), cmp.Compare(b.path, a.path)) })
	if l.more = len(l.files) - maxFiles; l.more > 0 {
		l.files = l.files[:maxFiles]
	}
	if slices.Equal(l.files, before) {
		l.err = errors.Join(errs...)
		return l
	}
	for _, f := range slices.Backward(l.files) {
		p, err := f.read(host)
		switch {
		case errors.Is(err, fs.ErrNotExist): // moved: found at the next look
		case err != nil:
			errs = append(errs, err)
			l.files = nil
		default:
			l.parts = append(l.parts, p)
		}
	}
	l.err = errors.Join(errs...)
	return l
}

// part is the content of a file.
type part struct {
	file
	of     string // "Panic#2" and where it is: parts of one record have the same; "": a whole record
	number int    // 1 is the end of the record
	reason string // why the kernel stored it: "Panic", "Oops" …; "" if unknown
	text   []byte
	packed bool // it could not be decompressed
}

// heading is the first line of a part.
var heading = regexp.MustCompile(`^([A-Z]\w*)#\d+ Part(\d{1,6})$`)

func (f file) read(host hostfs.FS) (part, error) {
	opened, err := host.Open(f.path)
	if err != nil {
		return part{}, err
	}
	defer opened.Close()
	if f.size > maxSize {
		if _, err := opened.Seek(f.size-maxSize, io.SeekStart); err != nil {
			return part{}, err
		}
	}
	text, err := io.ReadAll(io.LimitReader(opened, maxSize))
	if err != nil {
		return part{}, &fs.PathError{Op: "read", Path: host.Path(f.path), Err: errors.Unwrap(err)}
	}
	if f.size > maxSize {
		_, text, _ = bytes.Cut(text, []byte{'\n'}) // the rest of a line
	}
	return f.parse(text), nil
}

func (f file) parse(text []byte) part {
	p := part{file: f, text: text, packed: strings.HasSuffix(f.path, ".enc.z")}
	if name := path.Base(f.path); !strings.HasPrefix(name, "dmesg-") {
		p.reason = "Panic" // kdump has started
		return p
	}
	first, rest, _ := bytes.Cut(text, []byte{'\n'})
	if m := heading.FindSubmatch(first); m != nil && !p.packed {
		backend := f.path[:strings.LastIndexByte(f.path, '-')]
		p.of, p.reason, p.text = backend+" "+string(bytes.Fields(first)[0]), string(m[1]), rest
		p.number, _ = strconv.Atoi(string(m[2])) // digits
	}
	return p
}
