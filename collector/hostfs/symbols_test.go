package hostfs

import (
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestSymbolsStack(t *testing.T) {
	s := NewSymbols(fixture(t, "6.12-systemd-v2"))
	got := s.Stack([]uint64{
		0xffffffffa9e00146, // inside io_schedule
		0xffffffffa9e00250, // right after a call that ends the previous function
		0xffffffffc0a01012,
		0xffffffffa9e00501, // after the code
		0x7f0000001000,     // user space
		0,
	})
	want := []string{
		"io_schedule+0x46",
		"mem_cgroup_out_of_memory.constprop.0+0x100",
		"ext4_sync_file+0x12 [ext4]",
		"0xffffffffa9e00501",
		"0x7f0000001000",
		"0x0",
	}
	if !slices.Equal(got, want) {
		t.Errorf("stack = %q\nwant    %q", got, want)
	}
}

func TestSymbolsLazyAndIdle(t *testing.T) {
	f := fixture(t, "6.12-systemd-v2")
	synctest.Test(t, func(t *testing.T) {
		s := NewSymbols(f)
		if s.table != nil {
			t.Error("a table before the first need")
		}
		if _, _, ok := s.Lookup(0x1000); ok || s.table != nil {
			t.Error("a user address made the table load")
		}
		name, off, ok := s.Lookup(0xffffffffa9e00101)
		if name != "io_schedule" || off != 1 || !ok {
			t.Errorf("%q+%d %t", name, off, ok)
		}
		for range 2 {
			time.Sleep(symbolsIdle - 1)
			if s.table == nil {
				t.Error("dropped while in use")
			}
			s.Lookup(0xffffffffa9e00101)
		}
		time.Sleep(symbolsIdle)
		synctest.Wait()
		if s.table != nil {
			t.Error("not dropped when idle")
		}
		if _, _, ok := s.Lookup(0xffffffffa9e00101); !ok {
			t.Error("not loaded again after the drop")
		}
	})
}

// Symbols of a module loaded later are found, but misses do not cause repeated reads of the table.
func TestSymbolsReload(t *testing.T) {
	f := fixture(t, "6.12-systemd-v2")
	const addr = 0xffffffffc0c00010
	synctest.Test(t, func(t *testing.T) {
		s := NewSymbols(f)
		s.Lookup(addr)
		write(t, f, "/proc/kallsyms", "ffffffffc0c00000 t late\t[mod]\n")
		if _, _, ok := s.Lookup(addr); ok {
			t.Error("read again at once")
		}
		time.Sleep(symbolsRetry)
		if name, _, _ := s.Lookup(addr); name != "late [mod]" {
			t.Errorf("name = %q", name)
		}
	})
}

// If a module is loaded into memory that another used before, such as for its init section, an
// address there does not get the old name.
func TestSymbolsOfReusedMemory(t *testing.T) {
	f := fixture(t, "6.12-systemd-v2")
	const addr = 0xffffffffc0c00010
	lookup := func(s *Symbols) string { name, _, _ := s.Lookup(addr); return name }
	synctest.Test(t, func(t *testing.T) {
		s := NewSymbols(f)
		write(t, f, "/proc/modules", "dm_mod 188416 0 - Loading 0xffffffffc0b00000\n")
		write(t, f, "/proc/kallsyms", "ffffffffc0c00000 t dm_stripe_init\t[dm_mod]\n")
		if name := lookup(s); name != "dm_stripe_init [dm_mod]" {
			t.Errorf("name = %q", name)
		}
		const modules = "nf_tables 323584 7 - Live 0xffffffffc0c00000\ndm_mod 188416 0 - Live 0xffffffffc0b00000\n"
		write(t, f, "/proc/modules", modules)
		write(t, f, "/proc/kallsyms", "ffffffffc0c00000 t nft_do_chain\t[nf_tables]\n")
		time.Sleep(modulesEvery)
		if name := lookup(s); name != "nft_do_chain [nf_tables]" {
			t.Errorf("name = %q", name)
		}
		// A changed use count of a module does not cause another read.
		write(t, f, "/proc/modules", strings.Replace(modules, " 7 - ", " 9 ip_tables,x, ", 1))
		write(t, f, "/proc/kallsyms", "ffffffffc0c00000 t not_read\t[nf_tables]\n")
		time.Sleep(modulesEvery)
		if name := lookup(s); name != "nft_do_chain [nf_tables]" {
			t.Errorf("name = %q", name)
		}
	})
}

// A read of the table that fails is repeated: until then the old names of a module's memory stay.
func TestSymbolsAfterAFailedReload(t *testing.T) {
	f := fixture(t, "6.12-systemd-v2")
	const addr = 0xffffffffc0c00010
	synctest.Test(t, func(t *testing.T) {
		s := NewSymbols(f)
		write(t, f, "/proc/modules", "old 4096 0 - Live 0xffffffffc0c00000\n")
		write(t, f, "/proc/kallsyms", "ffffffffc0c00000 t of_old\t[old]\n")
		s.Lookup(addr)
		write(t, f, "/proc/modules", "new 4096 0 - Live 0xffffffffc0c00000\n")
		if err := os.Remove(f.Path("/proc/kallsyms")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(modulesEvery)
		s.Lookup(addr)
		write(t, f, "/proc/kallsyms", "ffffffffc0c00000 t of_new\t[new]\n")
		time.Sleep(modulesEvery)
		if name, _, _ := s.Lookup(addr); name != "of_new [new]" {
			t.Errorf("name = %q", name)
		}
	})
}

// While functions are traced, the kernel still lists those of a module's init section under the
// module's name, after those of all modules. Here nf_tables occupies memory that btrfs used for its
// init section, as on Linux 7.2 for arm64.
func TestSymbolsOfTracedInitSections(t *testing.T) {
	f := fixture(t, "6.12-systemd-v2")
	write(t, f, "/proc/modules", "nf_tables 323584 2 nft_reject_inet,nft_reject, Live 0xffffb0325e707000\n"+
		"btrfs 2101248 0 - Live 0xffffb0325e502000\n"+
		"late 8192 0 - Loading 0xffffb0325e800000\n")
	write(t, f, "/proc/kallsyms", "ffffb0325e707130 T nft_do_chain\t[nf_tables]\n"+
		"ffffb0325e502010 t btrfs_kill_super\t[btrfs]\n"+
		"ffffb0325e900010 t late_init\t[late]\n"+
		"ffffb0325e707150 T btrfs_init_cachep\t[btrfs]\n"+
		"ffffb0325ea00000 t bpf_prog_1\t[bpf]\n")
	s := NewSymbols(f)
	for addr, want := range map[uint64]string{
		0xffffb0325e707450: "nft_do_chain [nf_tables]", 0xffffb0325e502020: "btrfs_kill_super [btrfs]",
		0xffffb0325e900020: "late_init [late]", 0xffffb0325ea00010: "bpf_prog_1 [bpf]",
	} {
		if name, _, _ := s.Lookup(addr); name != want {
			t.Errorf("%x = %q, want %q", addr, name, want)
		}
	}
}

func TestSymbolsAreHidden(t *testing.T) {
	f := fixture(t, "6.12-systemd-v2")
	write(t, f, "/proc/kallsyms", "0000000000000000 T a\n0000000000000000 T b\n")
	s := NewSymbols(f)
	if got := s.Stack([]uint64{0xffffffff81000000}); got[0] != "0xffffffff81000000" {
		t.Errorf("stack = %q", got)
	}
	if _, err := f.Ranges("a"); !errors.Is(err, ErrRestricted) {
		t.Errorf("Ranges: error = %v, want ErrRestricted", err)
	}
	if name, _, ok := NewSymbols(New(t.TempDir())).Lookup(1 << 63); ok {
		t.Errorf("no kallsyms: %s", name)
	}
}

func TestSymbolsConcurrently(t *testing.T) {
	s := NewSymbols(fixture(t, "6.12-systemd-v2"))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				if name, _, _ := s.Lookup(0xffffffffa9e00101); name != "io_schedule" {
					t.Errorf("name = %q", name)
				}
				s.drop()
			}
		})
	}
	wg.Wait()
}

func TestRangeContains(t *testing.T) {
	r := Range{Start: 0x100, End: 0x200}
	for addr, want := range map[uint64][2]bool{
		0xff: {false, false}, 0x100: {true, false}, 0x101: {true, true}, 0x1ff: {true, true}, 0x200: {false, true}, 0x201: {},
	} {
		if got := [2]bool{r.Contains(addr), r.Contains(addr - 1)}; got != want {
			t.Errorf("%#x: contains, return = %v, want %v", addr, got, want)
		}
	}
}

func TestRangesAliasesAndEnd(t *testing.T) {
	f := fixture(t, "6.12-systemd-v2")
	write(t, f, "/proc/kallsyms", "ffffffff81000000 T f\nffffffff81000000 T alias\nffffffff81000000 T f2\n"+
		"ffffffff81000020 t f.isra.0\nffffffff81000020 D data\nffffffff81000030 T last\nffffffffc0000000 t f\t[mod]\n")
	got, err := f.Ranges("f", "last")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]Range{
		"f":        {0xffffffff81000000, 0xffffffff81000020},
		"f.isra.0": {0xffffffff81000020, 0xffffffff81000030},
	}
	if len(got) != len(want) || got["f"] != want["f"] || got["f.isra.0"] != want["f.isra.0"] {
		t.Errorf("ranges = %#v, want %#v", got, want)
	}
}
