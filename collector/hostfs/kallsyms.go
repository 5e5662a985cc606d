package hostfs

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/kernosis/kernosis/collector/display"
)

// ErrRestricted means that the kernel hides its addresses from this process (kptr_restrict, or no
// CAP_SYSLOG): names are readable, but all addresses are 0.
var ErrRestricted = errors.New("kernel addresses are hidden (kptr_restrict)")

const (
	// maxSymbolLine exceeds KSYM_NAME_LEN (512) + MODULE_NAME_LEN (64).
	maxSymbolLine = 1 << 10
	// restrictedAfter is the number of lines with address 0 after which reading stops. Per-CPU
	// symbols begin at 0 on x86 before 6.15, and a handful share that address.
	restrictedAfter = 1 << 10
	// maxSymbolBytes keeps name offsets within 32 bits. Every kernel is far below it.
	maxSymbolBytes = 1 << 30
	// moduleGuard bounds the last symbol of a module: with strict module permissions code and data
	// are on separate pages, so the code ends with a page. If pages are larger, the tail of that
	// symbol has no name, but never a wrong one.
	moduleGuard = 4 << 10
)

// symbolLine is one line of /proc/kallsyms; its slices belong to the reader.
type symbolLine struct {
	addr   uint64
	kind   byte // as in nm(1)
	name   []byte
	module []byte // without brackets; empty: the kernel image
}

// isText reports whether the symbol is code: t, T, or weak.
func (s *symbolLine) isText() bool { return s.kind|0x20 == 't' || s.kind|0x20 == 'w' }

// scanKallsyms calls fn for each line of r. It skips lines that it can't parse. Reading the 122,000
// lines of a kernel takes 90 ms, mostly because the kernel formats them.
func scanKallsyms(r io.Reader, fn func(*symbolLine)) error {
	var line symbolLine
	lines := bufio.NewReaderSize(r, 64<<10)
	zero := 0 // leading lines with address 0; -1 after the first other
	for inLine := false; ; {
		text, err := lines.ReadSlice('\n')
		tooLong := errors.Is(err, bufio.ErrBufferFull)
		if !inLine && !tooLong && parseSymbolLine(bytes.TrimSuffix(text, []byte{'\n'}), &line) {
			switch {
			case zero < 0 || line.addr != 0:
				zero = -1
			case zero+1 == restrictedAfter:
				return ErrRestricted
			default:
				zero++
			}
			fn(&line)
		}
		inLine = tooLong
		switch {
		case err == nil, tooLong:
		case errors.Is(err, io.EOF) && zero <= 0:
			return nil
		case errors.Is(err, io.EOF):
			return ErrRestricted
		default:
			return err
		}
	}
}

// parseSymbolLine parses "ffffffffc0201000 t name\t[module]".
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

// symbolTable contains the code symbols sorted by address. names holds "name" or "name [module]",
// each terminated by a line feed; the name of addrs[i] begins at offs[i]. A kernel with 122,000
// symbols takes about 4 MiB.
type symbolTable struct {
	addrs []uint64
	offs  []uint32
	names string
	etext uint64 // end of the kernel image's code; 0: unknown
}

// parseKallsyms parses the text of /proc/kallsyms. Of several symbols at one address it keeps the
// first, which the kernel also prints. It omits code of the kernel image outside _stext.._etext:
// that is the init section, whose memory was freed long ago and reused. It also omits the init
// sections of loaded modules, which the kernel lists while functions are traced.
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
	// The image's symbols are sorted; those of modules follow in loading order.
	slices.SortStableFunc(entries, func(a, b entry) int { return cmp.Compare(a.addr, b.addr) })
	entries = slices.CompactFunc(entries, func(a, b entry) bool { return a.addr == b.addr })
	t.addrs, t.offs = make([]uint64, len(entries)), make([]uint32, len(entries))
	for i, e := range entries {
		t.addrs[i], t.offs[i] = e.addr, e.off
	}
	return t, nil
}

// lookup returns the symbol that contains addr, whose name shares the table's memory. t may be nil.
func (t *symbolTable) lookup(addr uint64) (name string, off uint64, ok bool) {
	if t == nil {
		return "", 0, false
	}
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

// end returns the first address after symbol i: the module's next symbol, or the section's end.
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
		return next // the last page of the address space
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

// Module is a kernel module.
type Module struct {
	Name  string
	Size  uint64 // of code and data, in bytes
	Live  bool   // false: it is being loaded or unloaded
	Base  uint64 // address of its code; 0: hidden by the kernel
	Taint string // letters of the taints that it causes: P proprietary, O out of tree, E unsigned …
}

// maxModules is far more than any node has.
const maxModules = 10_000

// ParseModules reads the text of /proc/modules.
func ParseModules(s string) []Module {
	var modules []Module
	for line := range strings.Lines(s) {
		fields := strings.Fields(line) // name size users by-whom state address (taint)
		if len(fields) < 6 || len(modules) == maxModules {
			continue
		}
		size, errSize := strconv.ParseUint(fields[1], 10, 64)
		base, errBase := strconv.ParseUint(fields[5], 0, 64)
		if errSize != nil || errBase != nil {
			continue
		}
		m := Module{Name: display.Safe(fields[0], 64), Size: size, Live: fields[4] == "Live", Base: base}
		if last := fields[len(fields)-1]; strings.HasPrefix(last, "(") {
			m.Taint = display.Safe(strings.Trim(last, "()+-"), 32) // + and -: it comes or goes
		}
		modules = append(modules, m)
	}
	return modules
}

// Modules returns the kernel's modules, none if the kernel has no module support.
func (f FS) Modules() ([]Module, error) {
	s, err := f.read("/proc/modules", largeFile)
	switch {
	case os.IsNotExist(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return ParseModules(s), nil
}

// codeOf returns the code range of each loaded module, by name. A range begins at the module's base
// and has the length of code and data together, but ends where the next module begins. Modules that
// are still being loaded are omitted, because their init section is elsewhere.
func codeOf(all []Module) map[string]Range {
	sorted := slices.SortedFunc(slices.Values(all), func(a, b Module) int { return cmp.Compare(a.Base, b.Base) })
	out := make(map[string]Range, len(sorted))
	for i, m := range sorted {
		next := uint64(math.MaxUint64)
		if i+1 < len(sorted) {
			next = sorted[i+1].Base
		}
		if m.Base != 0 && m.Live {
			out[m.Name] = Range{Start: m.Base, End: min(m.Base+m.Size, next)}
		}
	}
	return out
}
