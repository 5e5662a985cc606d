package hostfs

import (
	"bytes"
	"errors"
	"io"
	"math"
	"slices"
	"sort"
	"strings"
)

// ErrRestricted means that the kernel hides its addresses from this process
// (kptr_restrict, or no CAP_SYSLOG): there are names, but none has an address.
var ErrRestricted = errors.New("kernel addresses are hidden (kptr_restrict)")

const (
	// maxSymbolLine is more than KSYM_NAME_LEN (512) + MODULE_NAME_LEN (64).
	maxSymbolLine = 1 << 10
	// restrictedAfter lines without one address the rest is not read. Per-CPU
	// symbols begin at 0 on x86 before 6.15, a handful share that address.
	restrictedAfter = 1 << 10
	// maxSymbolBytes keeps name offsets in 32 bits, far above any kernel.
	maxSymbolBytes = 1 << 30
	// moduleGuard bounds the last symbol of a module: text is mapped apart from
	// data since strict module permissions, so it ends with a page. Pages may be
	// larger; then the tail of that one symbol stays unnamed, never misnamed.
	moduleGuard = 4 << 10
)

// symbolLine is one line of /proc/kallsyms; its slices are the reader's.
type symbolLine struct {
	addr   uint64
	kind   byte // as in nm(1)
	name   []byte
	module []byte // without brackets; empty: the kernel image
}

// isText reports whether the symbol is code: t, T, or weak.
func (s *symbolLine) isText() bool { return s.kind|0x20 == 't' || s.kind|0x20 == 'w' }

// scanKallsyms calls fn for each line of r. Lines it can't read are skipped.
// Measured on 122,000 lines: 9 ms of the 90 ms that reading /proc/kallsyms
// takes; the rest is the kernel's own formatting.
func scanKallsyms(r io.Reader, fn func(*symbolLine)) error {
	var line symbolLine
	buf := make([]byte, 0, 64<<10)
	skip := false // inside a line longer than any
	zero := 0     // lines without an address so far
	for {
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		rest := buf
		for {
			i := bytes.IndexByte(rest, '\n')
			if i < 0 && (err == nil || len(rest) == 0) {
				break
			}
			text := rest
			if i < 0 {
				rest = nil
			} else {
				text, rest = rest[:i], rest[i+1:]
			}
			if !skip && parseSymbolLine(text, &line) {
				if zero >= 0 && line.addr == 0 {
					if zero++; zero == restrictedAfter {
						return ErrRestricted
					}
				} else {
					zero = -1
				}
				fn(&line)
			}
			skip = false
		}
		switch {
		case errors.Is(err, io.EOF):
			if zero > 0 {
				return ErrRestricted
			}
			return nil
		case err != nil:
			return err
		}
		if len(rest) > maxSymbolLine {
			skip, rest = true, nil
		}
		buf = buf[:copy(buf[:cap(buf)], rest)]
	}
}

// parseSymbolLine reads "ffffffffc0201000 t name\t[module]".
func parseSymbolLine(b []byte, s *symbolLine) bool {
	var addr uint64
	i := 0
	for ; i < len(b) && b[i] != ' '; i++ {
		c := b[i]
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		default:
			return false
		}
		addr = addr<<4 | uint64(c)
	}
	// " t " and at least one byte of a name
	if i == 0 || i > 16 || len(b) < i+4 || b[i+2] != ' ' || len(b) > maxSymbolLine {
		return false
	}
	s.addr, s.kind = addr, b[i+1]
	s.name, s.module = b[i+3:], nil
	if j := bytes.IndexByte(s.name, '\t'); j >= 0 {
		m := s.name[j+1:]
		if len(m) < 3 || m[0] != '[' || m[len(m)-1] != ']' {
			return false
		}
		s.name, s.module = s.name[:j], m[1:len(m)-1]
	}
	return len(s.name) > 0
}

// symbolTable is the code symbols sorted by address. names holds "name" or
// "name [module]", each ended by a line feed; offs[i] is where that of addrs[i]
// begins. A kernel of 122,000 symbols takes about 4 MiB.
type symbolTable struct {
	addrs []uint64
	offs  []uint32
	names string
	etext uint64 // end of the kernel image's code; 0: unknown
}

// parseKallsyms reads the text of /proc/kallsyms. Of symbols at one address the
// first is kept, as the kernel does when it prints one. Code of the kernel
// image outside _stext.._etext is left out: it is of the init section, whose
// memory has long been freed and belongs to others. So is what the kernel lists of the init
// section of a loaded module, as it does while functions are traced.
func parseKallsyms(r io.Reader, loaded []Module) (*symbolTable, error) {
	type entry struct {
		addr   uint64
		off    uint32
		module bool
	}
	var (
		entries = make([]entry, 0, 128<<10)
		names   strings.Builder
		stext   uint64
		etext   uint64
		tooBig  bool
	)
	names.Grow(3 << 20)
	code := codeOf(loaded)
	err := scanKallsyms(r, func(s *symbolLine) {
		if len(s.module) == 0 {
			switch string(s.name) {
			case "_stext":
				stext = s.addr
			case "_etext":
				etext = s.addr
				return // not a function: the end of the last one
			}
		}
		if !s.isText() || s.addr == 0 {
			return
		}
		if r, live := code[string(s.module)]; live && !r.Contains(s.addr) {
			return
		}
		if names.Len() > maxSymbolBytes {
			tooBig = true
			return
		}
		entries = append(entries, entry{s.addr, uint32(names.Len()), len(s.module) > 0})
		names.Write(s.name)
		if len(s.module) > 0 {
			names.WriteString(" [")
			names.Write(s.module)
			names.WriteByte(']')
		}
		names.WriteByte('\n')
	})
	if err != nil {
		return nil, err
	}
	if tooBig {
		return nil, errors.New("parse kallsyms: more than 1 GiB of names")
	}
	t := &symbolTable{names: names.String(), etext: etext}
	if etext > 0 && stext < etext {
		entries = slices.DeleteFunc(entries, func(e entry) bool {
			return !e.module && (e.addr < stext || e.addr >= etext)
		})
	}
	// The image's part comes sorted, modules follow in the order of loading.
	byAddr := func(i, j int) bool { return entries[i].addr < entries[j].addr }
	if !sort.SliceIsSorted(entries, byAddr) {
		sort.SliceStable(entries, byAddr)
	}
	entries = slices.CompactFunc(entries, func(a, b entry) bool { return a.addr == b.addr })
	t.addrs, t.offs = make([]uint64, len(entries)), make([]uint32, len(entries))
	for i, e := range entries {
		t.addrs[i], t.offs[i] = e.addr, e.off
	}
	return t, nil
}

// lookup returns the symbol that contains addr. The name shares the table's memory.
func (t *symbolTable) lookup(addr uint64) (name string, off uint64, ok bool) {
	i, found := slices.BinarySearch(t.addrs, addr)
	if !found {
		i-- // the last one that begins before addr
	}
	if i < 0 || addr >= t.end(i) {
		return "", 0, false
	}
	return t.name(i), addr - t.addrs[i], true
}

func (t *symbolTable) name(i int) string {
	s := t.names[t.offs[i]:]
	return s[:strings.IndexByte(s, '\n')]
}

// end returns the first address after symbol i: the next symbol of the same
// module, but not beyond the end of the section.
func (t *symbolTable) end(i int) uint64 {
	next := uint64(math.MaxUint64)
	if i+1 < len(t.addrs) {
		next = t.addrs[i+1]
	}
	_, module := cutModule(t.name(i))
	switch {
	case module == "" && t.etext > t.addrs[i]:
		return min(next, t.etext)
	case i+1 < len(t.addrs):
		if _, m := cutModule(t.name(i + 1)); m == module {
			return next
		}
	}
	page := t.addrs[i]&^(moduleGuard-1) + moduleGuard
	if page == 0 {
		return next // the last page there is
	}
	return min(next, page)
}

// cutModule splits "name [module]"; module keeps its brackets and the space.
func cutModule(s string) (name, module string) {
	if i := strings.Index(s, " ["); i >= 0 {
		return s[:i], s[i:]
	}
	return s, ""
}
