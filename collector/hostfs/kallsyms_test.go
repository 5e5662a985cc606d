package hostfs

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

func readTable(t testing.TB, text string) *symbolTable {
	t.Helper()
	table, err := parseKallsyms(strings.NewReader(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestLookup(t *testing.T) {
	text, err := os.ReadFile("testdata/6.12-systemd-v2/proc/kallsyms")
	if err != nil {
		t.Fatal(err)
	}
	table := readTable(t, string(text))
	tests := []struct {
		addr uint64
		name string // empty: no symbol
		off  uint64
	}{
		{0xffffffffa9dfffff, "", 0},
		{0xffffffffa9e00000, "_stext", 0}, // the first of two at this address
		{0xffffffffa9e00100, "io_schedule", 0},
		{0xffffffffa9e0014f, "io_schedule", 0x4f},
		{0xffffffffa9e00150, "mem_cgroup_out_of_memory.constprop.0", 0},
		{0xffffffffa9e0042f, "weak_one", 0xf},
		{0xffffffffa9e004ff, "weak_one", 0xdf},
		{0xffffffffa9e00500, "", 0}, // _etext
		{0xffffffffab000014, "", 0}, // freed init code
		{0xffffffffaa000000, "", 0}, // data
		{0, "", 0},
		{0xffffffffc0900050, "dm_suspend [dm_mod]", 0x10},
		{0xffffffffc0900fff, "dm_resume [dm_mod]", 0xeff},
		{0xffffffffc0901000, "", 0}, // past the page of the module's last symbol
		{0xffffffffc0a011ff, "ext4_sync_file [ext4]", 0x1ff},
		{0xffffffffc0a01250, "ext4_readdir [ext4]", 0x50},
		{0xffffffffc0a09000, "", 0}, // the module's data
		{0xffffffffc0b00ffe, "bpf_prog_6deef7357e7b4530_sd_fw [bpf]", 0xffe},
		{0xffffffffffffffff, "", 0},
	}
	for _, tt := range tests {
		name, off, ok := table.lookup(tt.addr)
		if name != tt.name || off != tt.off || ok != (tt.name != "") {
			t.Errorf("lookup(%#x) = %q+%#x %t, want %q+%#x", tt.addr, name, off, ok, tt.name, tt.off)
		}
	}
}

func TestLookupLastPage(t *testing.T) {
	table := readTable(t, "fffffffffffff010 t last\t[m]\n")
	if name, off, ok := table.lookup(0xfffffffffffffff0); !ok || name != "last [m]" || off != 0xfe0 {
		t.Errorf("%q+%#x %t", name, off, ok)
	}
}

func TestParseKallsymsRestricted(t *testing.T) {
	const zero = "0000000000000000 T symbol\n"
	for name, n := range map[string]int{"few": 3, "many": 200_000} {
		if _, err := parseKallsyms(strings.NewReader(strings.Repeat(zero, n)), nil); !errors.Is(err, ErrRestricted) {
			t.Errorf("%s: error = %v, want ErrRestricted", name, err)
		}
	}
	// Per-CPU symbols at 0 do not mean that addresses are hidden.
	table := readTable(t, strings.Repeat("0000000000000000 A percpu\n", 20)+"ffffffff81000000 T f\n")
	if _, _, ok := table.lookup(0xffffffff81000001); !ok {
		t.Error("symbol after per-CPU symbols not found")
	}
}

func TestScanKallsymsLines(t *testing.T) {
	text := "ffffffff81000000 T a\n" +
		"\n" + "no hex\n" + "ffffffff81000010 T\n" + "ffffffff81000010 T \n" + "ffffffff81000010  T x\n" +
		"1ffffffff81000000 T toolong\n" + "ffffffff81000010 T m\t[\n" + "ffffffff81000010 T m\t[]\n" +
		"ffffffff81000020 T " + strings.Repeat("x", 2000) + "\n" +
		"ffffffff81000030 T " + strings.Repeat("y", 200_000) + "\n" +
		"ffffffff81000040 T b\t[m]\n" +
		"ffffffff81000050 T unterminated"
	want := []string{"a", "b [m]", "unterminated"}
	if err := scanNames(t, strings.NewReader(text), want); err != nil {
		t.Error(err)
	}
	if err := scanNames(t, iotest.OneByteReader(strings.NewReader(text)), want); err != nil {
		t.Error(err)
	}
	broken := errors.New("broken")
	if err := scanKallsyms(iotest.ErrReader(broken), func(*symbolLine) {}); !errors.Is(err, broken) {
		t.Errorf("error = %v, want the reader's", err)
	}
}

func scanNames(t *testing.T, r io.Reader, want []string) error {
	t.Helper()
	var got []string
	err := scanKallsyms(r, func(s *symbolLine) {
		name := string(s.name)
		if len(s.module) > 0 {
			name += " [" + string(s.module) + "]"
		}
		got = append(got, name)
	})
	if !slices.Equal(got, want) {
		t.Errorf("names = %.100q, want %q", got, want)
	}
	return err
}

func FuzzParseKallsyms(f *testing.F) {
	for _, name := range fixtures {
		text, err := os.ReadFile("testdata/" + name + "/proc/kallsyms")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte("ffffffffffffffff t a\t[b]\n0 t c\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		table, err := parseKallsyms(bytes.NewReader(text), nil)
		if err != nil {
			return
		}
		for i, addr := range table.addrs {
			if i > 0 && addr <= table.addrs[i-1] {
				t.Fatalf("not sorted at %d: %#x", i, addr)
			}
			// A lookup of each symbol's address finds it, except a zero-sized one at a section's
			// end.
			if table.end(i) <= addr {
				continue
			}
			if name, off, ok := table.lookup(addr); !ok || off != 0 || name == "" {
				t.Fatalf("lookup(%#x) = %q+%#x %t", addr, name, off, ok)
			}
		}
		table.lookup(0)
		table.lookup(1<<64 - 1)
	})
}

// BenchmarkKallsyms: "kernel" reads and parses the running kernel's symbols, "parse" parses the
// same text from memory: the difference is the kernel's formatting.
func BenchmarkKallsyms(b *testing.B) {
	text, err := os.ReadFile("/proc/kallsyms")
	if err != nil {
		b.Skip(err)
	}
	b.Run("kernel", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := (FS{}).readKallsyms(nil); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("parse", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			if _, err := parseKallsyms(bytes.NewReader(text), nil); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("ranges", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := (FS{}).Ranges("mem_cgroup_out_of_memory", "oom_kill_process"); err != nil {
				b.Fatal(err)
			}
		}
	})
	table, err := parseKallsyms(bytes.NewReader(text), nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("lookup", func(b *testing.B) {
		addr := table.addrs[len(table.addrs)/3] + 1
		b.ReportAllocs()
		for b.Loop() {
			table.lookup(addr)
		}
		b.ReportMetric(float64(len(table.addrs)*12+len(table.names)), "table-bytes")
	})
}
