package file

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// sibling is a rotated file beside the one at the path.
type sibling struct {
	name    string // path on the real root
	plain   string // name before it was compressed
	packing packing
	stat    fileStat
}

// open opens the sibling if it is still the file that was listed.
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

// maxSiblings bounds how many rotated files are considered: the newest ones.
const maxSiblings = 64

// siblings lists the rotated files of the file with this name, the last written one at the end. If a file
// also exists in compressed form, the original counts until it is deleted.
func siblings(name string) []sibling {
	// A rotation renames one file after the other: a list made in between is incomplete.
	for try := 0; ; try++ {
		if all, whole := listSiblings(name); whole || try == listTries {
			return all
		}
	}
}

// listTries is how often rotated files are listed if some are renamed or compressed meanwhile.
const listTries = 5

// listed is a sibling with its first bytes, compressed if the file is.
type listed struct {
	sibling
	head []byte
}

// listHeads returns the siblings that can be opened, with their first bytes.
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

// unpackedHead returns the first decompressed bytes, or some of them.
func (c listed) unpackedHead() []byte {
	if c.packing == plain {
		return c.head
	}
	z, err := gzip.NewReader(bytes.NewReader(c.head))
	if err != nil {
		return nil
	}
	head := make([]byte, headSize)
	n, _ := io.ReadFull(z, head) // c.head is cut, so it has no end
	return head[:n]
}

// listSiblings also reports whether the folder stayed unchanged while it was listed.
func listSiblings(name string) (all []sibling, whole bool) {
	dir, base := filepath.Split(name)
	before, err := os.Stat(dir)
	if err != nil {
		return nil, true // then the file itself can't be found either
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

// statAt returns the state of the file at path, which must not be a link.
func statAt(path string) (fileStat, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fileStat{}, err
	}
	defer unix.Close(fd)
	return statFD(fd)
}

// compareAge orders rotated files by when they were last written. Compressing keeps that time
// (logrotate, gzip) or puts the date of the rotation in the name (kubelet).
func compareAge(a, b sibling) int {
	if a.packing != plain || b.packing != plain {
		if d, e := rotationDate(a.plain), rotationDate(b.plain); d != e && len(d) == len(e) {
			return strings.Compare(d, e)
		}
	}
	return cmp.Or(cmp.Compare(a.stat.modified, b.stat.modified), compareNames(a.plain, b.plain))
}

// compareNames orders files of the same clock tick, oldest first: 10, 2, 1 and 20260101, 20260102.
func compareNames(a, b string) int {
	if n, m := rotationNumber(a), rotationNumber(b); n >= 0 && m >= 0 {
		return m - n
	}
	return strings.Compare(a, b)
}

// rotationNumber returns the number that a name ends with, or -1 if there is none or it is a date.
func rotationNumber(name string) int {
	digits := name[len(strings.TrimRight(name, "0123456789")):]
	n, err := strconv.Atoi(digits)
	if err != nil || len(digits) > 5 {
		return -1
	}
	return n
}

// rotationDate returns the digits of a date in the name, from the year to the smallest unit,
// followed by any other digits; "" if there is none, or if it begins with the day.
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

// isRotated reports whether name is a rotated name of base: with a number or date behind it (kern.log.1,
// kern.log-20260102) or before its extension (app-2026-01-02.log, app.1.log).
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

// isRotation reports whether s is a separator followed by a number or date. The only letters
// allowed are those of times such as 20260102T030405Z; extensions such as .gz don't match.
func isRotation(s string) bool {
	if len(s) < 2 || strings.IndexByte(".-_", s[0]) < 0 || s[1] < '0' || s[1] > '9' {
		return false
	}
	return strings.Trim(s[2:], "0123456789.-_:TZ+") == ""
}
