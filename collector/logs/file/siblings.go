package file

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// sibling is a rotated file beside the one at the path.
type sibling struct {
	name    string // below the real root
	plain   string // before it was compressed
	packing packing
	stat    fileStat
}

// writtenBefore reports whether it was not written since.
func (s sibling) writtenBefore(t time.Time) bool {
	return time.Unix(s.stat.modified.Unix()).Before(t)
}

// open opens the sibling, if it still is the one that was listed.
func (s sibling) open() (*os.File, bool) {
	f, err := os.OpenFile(s.name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, false
	}
	if st, err := stat(f); err != nil || !st.sameFile(s.stat) {
		closeFile(f)
		return nil, false
	}
	return f, true
}

// maxSiblings bounds how many rotated files are looked at: the newest ones.
const maxSiblings = 64

// siblings lists the rotated files of the file with this name, the one that was
// written last at the end. One that is there compressed as well is about to go:
// it counts until then.
func siblings(name string) []sibling {
	// Rotating renames one file after the other: a list that was made meanwhile
	// lacks some.
	for range listTries {
		all, whole := listSiblings(name)
		if whole {
			return all
		}
	}
	all, _ := listSiblings(name)
	return all
}

// listTries is how often rotated files are listed anew because meanwhile one of
// them was renamed or compressed.
const listTries = 5

// listed is a sibling with its first bytes, compressed where it is.
type listed struct {
	sibling
	head []byte
}

// listHeads is siblings with the first bytes of each that can be opened.
func listHeads(name string) (all []listed) {
	for range listTries {
		all = nil
		present := siblings(name)
		for _, c := range present {
			if f, ok := c.open(); ok {
				if head, err := readHead(f); err == nil {
					all = append(all, listed{sibling: c, head: head})
				}
				closeFile(f)
			}
		}
		if len(all) == len(present) {
			break
		}
	}
	return all
}

// unpackedHead returns the first bytes of what it holds, or some of them.
func (c listed) unpackedHead() []byte {
	if c.packing == plain {
		return c.head
	}
	z, err := gzip.NewReader(bytes.NewReader(c.head))
	if err != nil {
		return nil
	}
	head := make([]byte, headSize)
	n, _ := io.ReadFull(z, head) // its end is missing
	return head[:n]
}

// listSiblings also reports whether the folder stayed unchanged while it was listed.
func listSiblings(name string) (all []sibling, whole bool) {
	dir, base := filepath.Split(name)
	before, err := os.Stat(dir)
	if err != nil {
		return nil, true // not even the file itself can be found then
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, true
	}
	whole = true
	present := make(map[string]bool)
	for _, e := range entries {
		unpacked, packing := unpackedName(e.Name())
		if !e.Type().IsRegular() || !isRotated(unpacked, base) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		st, err := statAt(path)
		if err != nil {
			whole = whole && errors.Is(err, errNotRegular)
			continue
		}
		all = append(all, sibling{name: path, plain: filepath.Join(dir, unpacked), packing: packing, stat: st})
		if packing == plain {
			present[path] = true
		}
	}
	after, err := os.Stat(dir)
	whole = whole && err == nil && before.ModTime().Equal(after.ModTime())
	all = slices.DeleteFunc(all, func(c sibling) bool { return c.packing != plain && present[c.plain] })
	slices.SortFunc(all, compareAge)
	return all[max(0, len(all)-maxSiblings):], whole
}

// statAt looks at what is at path, which is no link.
func statAt(path string) (fileStat, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fileStat{}, err
	}
	defer unix.Close(fd)
	return statFD(fd)
}

// compareAge orders rotated files by when they were written last. Whatever
// compresses one keeps that time (logrotate, gzip) or puts the date of the
// rotation in the name (kubelet).
func compareAge(a, b sibling) int {
	if a.packing != plain || b.packing != plain {
		if d, e := rotationDate(a.plain), rotationDate(b.plain); d != e && len(d) == len(e) {
			return strings.Compare(d, e)
		}
	}
	switch {
	case a.stat.before(b.stat):
		return -1
	case b.stat.before(a.stat):
		return 1
	default:
		return compareNames(a.plain, b.plain)
	}
}

// compareNames orders rotated files that were last written in the same tick of
// the clock, the older one first: 10, 2, 1 and 20260101, 20260102.
func compareNames(a, b string) int {
	if n, m := rotationNumber(a), rotationNumber(b); n >= 0 && m >= 0 {
		return m - n
	}
	return strings.Compare(a, b)
}

// rotationNumber returns the number that a name ends with, and -1 where it has
// none or that of a date.
func rotationNumber(name string) int {
	digits := name[len(strings.TrimRight(name, "0123456789")):]
	if len(digits) == 0 || len(digits) > 5 {
		return -1
	}
	n, err := strconv.Atoi(digits)
	if err != nil {
		return -1
	}
	return n
}

// rotationDate returns the digits of a date in the name, from the year to the
// smallest unit, with what follows; "" where there is none, or one that begins
// with the day.
func rotationDate(name string) string {
	base := filepath.Base(name)
	for i := range len(base) {
		if !strings.HasPrefix(base[i:], "20") || i > 0 && '0' <= base[i-1] && base[i-1] <= '9' {
			continue
		}
		digits := strings.Map(func(r rune) rune {
			if r < '0' || r > '9' {
				return -1
			}
			return r
		}, base[i:])
		if len(digits) >= 8 && "01" <= digits[4:6] && digits[4:6] <= "12" && "01" <= digits[6:8] && digits[6:8] <= "31" {
			return digits
		}
	}
	return ""
}

// isRotated reports whether name is what base is called after a rotation: with a
// number or a date behind it (kern.log.1, kern.log-20260102, 0.log.20260102-030405)
// or before its extension (app-2026-01-02.log, app.1.log).
func isRotated(name, base string) bool {
	if suffix, ok := strings.CutPrefix(name, base); ok {
		return isRotation(suffix)
	}
	ext := filepath.Ext(base)
	if ext == "" || ext == base {
		return false
	}
	middle, ok := strings.CutPrefix(name, strings.TrimSuffix(base, ext))
	if !ok {
		return false
	}
	middle, ok = strings.CutSuffix(middle, ext)
	return ok && isRotation(middle)
}

// isRotation reports whether s is a number or date with its separator. Letters are
// of times as in 20260102T030405Z; those of .gz and its like are not among them.
func isRotation(s string) bool {
	if len(s) < 2 || strings.IndexByte(".-_", s[0]) < 0 || s[1] < '0' || s[1] > '9' {
		return false
	}
	return strings.Trim(s[2:], "0123456789.-_:TZ+") == ""
}
