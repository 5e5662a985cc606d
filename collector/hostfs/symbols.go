package hostfs

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// symbolsIdle is the time without use after which the table's 4 MiB are freed: faults with
	// stacks come in bursts, days apart.
	symbolsIdle = 2 * time.Minute
	// symbolsRetry limits how often a miss causes another read of the table (a module may have been
	// loaded since), or a failed read is retried: one read costs 0.1 s.
	symbolsRetry = time.Minute
	// modulesEvery limits how often a hit in a module causes another read of the module list, which
	// takes 0.1 ms. Memory of an unloaded module, or of its init section, is reused.
	modulesEvery = 100 * time.Millisecond
	// kernelHalf is the lower bound of kernel addresses on every 64-bit architecture with BPF that
	// splits its address space.
	kernelHalf = 1 << 63
)

// Symbols resolves kernel code addresses to names. The table is read when first needed and dropped
// when idle. It is safe for concurrent use.
type Symbols struct {
	fs FS

	mu       sync.Mutex
	table    *symbolTable
	loadedAt time.Time   // of the last read, failed or not
	idle     *time.Timer // drops the table

	modules  []Module  // loaded when the table was read
	lookedAt time.Time // when modules was last compared
}

// NewSymbols returns Symbols of the running kernel, without reading anything yet.
func NewSymbols(f FS) *Symbols { return &Symbols{fs: f} }

// Lookup returns the function that contains addr and the offset in it. A symbol of a module has the
// module as suffix: "ext4_sync_file [ext4]".
func (s *Symbols) Lookup(addr uint64) (name string, off uint64, ok bool) {
	if addr < kernelHalf {
		return "", 0, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	name, off, ok = s.table.lookup(addr)
	if ok && strings.HasSuffix(name, "]") && s.modulesChanged() ||
		!ok && (s.loadedAt.IsZero() || time.Since(s.loadedAt) >= symbolsRetry) {
		s.load()
		name, off, ok = s.table.lookup(addr)
	}
	if s.table != nil {
		if s.idle == nil {
			s.idle = time.AfterFunc(symbolsIdle, s.drop)
		} else {
			s.idle.Reset(symbolsIdle)
		}
	}
	// Cloned, so that a name kept by the caller does not keep the table in memory.
	return strings.Clone(name), off, ok
}

// Stack returns the names of the frames of a kernel stack, innermost first, in the form of the
// kernel's own traces: "io_schedule+0x46", "ext4_sync_file+0x12 [ext4]", or the number if the name
// is unknown. Frames are return addresses, so it looks up the byte before each (like %pB): the call
// may have been the last instruction of its function.
func (s *Symbols) Stack(addrs []uint64) []string {
	out := make([]string, len(addrs))
	for i, addr := range addrs {
		name, off, ok := s.Lookup(addr - 1)
		if !ok {
			out[i] = "0x" + strconv.FormatUint(addr, 16)
			continue
		}
		name, module := cutModule(name)
		out[i] = name + "+0x" + strconv.FormatUint(off+1, 16) + module
	}
	return out
}

// drop frees the table's memory.
func (s *Symbols) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.table, s.modules, s.loadedAt = nil, nil, time.Time{}
}

// load reads the table; the caller holds mu. A failure keeps the old table.
func (s *Symbols) load() {
	s.loadedAt = time.Now()
	s.lookedAt = s.loadedAt
	modules, _ := s.fs.Modules() // if they can't be read, no symbol is omitted
	if table, err := s.fs.readKallsyms(modules); err == nil {
		s.table, s.modules = table, modules
	}
}

// modulesChanged reports whether modules or addresses changed since load; the caller holds mu.
func (s *Symbols) modulesChanged() bool {
	now := time.Now()
	if now.Sub(s.lookedAt) < modulesEvery {
		return false
	}
	s.lookedAt = now
	loaded, _ := s.fs.Modules() // as in load
	return !slices.Equal(loaded, s.modules)
}

func (f FS) readKallsyms(loaded []Module) (*symbolTable, error) {
	file, err := os.Open(f.Path("/proc/kallsyms"))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	t, err := parseKallsyms(file, loaded)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file.Name(), err)
	}
	return t, nil
}

// Range is the code range of one function.
type Range struct{ Start, End uint64 } // End is the first address after it

// Contains reports whether addr lies in the range.
func (r Range) Contains(addr uint64) bool { return r.Start <= addr && addr < r.End }

// Ranges returns the code ranges of functions of the kernel image, read in one pass without keeping
// a table. A key is a symbol's full name: the wanted name, or a part or copy that the compiler made
// of that function ("name.isra.0", "name.constprop.0", "name.part.0", "name.cold"), each with its
// own range. A missing name has no key. Of several static functions with one name the first is
// returned.
func (f FS) Ranges(names ...string) (map[string]Range, error) {
	file, err := os.Open(f.Path("/proc/kallsyms"))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	found := make(map[string]Range, len(names))
	var open []string // the symbols at the last address found: their end is not known yet
	err = scanKallsyms(file, func(s *symbolLine) {
		if len(s.module) > 0 {
			return
		}
		if len(open) > 0 && s.addr > found[open[0]].Start { // the image's symbols are sorted
			for _, name := range open {
				found[name] = Range{found[name].Start, s.addr}
			}
			open = open[:0]
		}
		if !s.isText() {
			return
		}
		for _, name := range names {
			if !isVariant(s.name, name) {
				continue
			}
			if key := string(s.name); found[key] == (Range{}) {
				found[key] = Range{Start: s.addr}
				open = append(open, key)
			}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file.Name(), err)
	}
	for _, name := range open {
		delete(found, name) // no symbol follows: the end is unknown
	}
	return found, nil
}

// isVariant reports whether symbol is name or "name.suffix" made by the compiler.
func isVariant(symbol []byte, name string) bool {
	rest, ok := bytes.CutPrefix(symbol, []byte(name))
	return ok && (len(rest) == 0 || rest[0] == '.')
}
