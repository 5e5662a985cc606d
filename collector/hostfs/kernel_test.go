package hostfs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseLoadAverage(t *testing.T) {
	got, err := ParseLoadAverage("0.27 0.60 1.02 1/148 4711\n")
	if err != nil || got != (LoadAverage{0.27, 0.6, 1.02, 148}) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, s := range []string{"", "1 2 3", "x 1 1 1/1 1", "1 1 1 1 1", "1 1 1 1/x 1"} {
		if got, err := ParseLoadAverage(s); err == nil {
			t.Errorf("%q: %+v", s, got)
		}
	}
}

func TestParseModules(t *testing.T) {
	got := ParseModules("nvidia 56713216 1 - Live 0xffffffffc0000000 (POE)\next4 1000 2 mbcache,jbd2, Live 0x0\nfresh 5 0 - Loading 0x0 (O+)\nbad\n")
	want := []Module{{"nvidia", 56713216, true, 0xffffffffc0000000, "POE"}, {"ext4", 1000, true, 0, ""}, {"fresh", 5, false, 0, "O"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTaints(t *testing.T) {
	letters := func(mask uint64) string {
		var letters []byte
		for _, t := range Taints(mask) {
			letters = append(letters, t.Letter)
		}
		return string(letters)
	}
	for mask, want := range map[uint64]string{0: "", 1 | 1<<12 | 1<<13: "POE", 1 << 7: "D", 1 << 9: "W", 1 << 40: "?"} {
		if got := letters(mask); got != want {
			t.Errorf("%#x: %q, want %q", mask, got, want)
		}
	}
}

func TestKernelOfThisMachine(t *testing.T) {
	f := FS{}
	if s, err := f.KernelCommandLine(); err != nil || s == "" {
		t.Errorf("%q, %v", s, err)
	}
	if l, err := f.LoadAverage(); err != nil || l.Tasks == 0 {
		t.Errorf("%+v, %v", l, err)
	}
	if _, err := f.Modules(); err != nil {
		t.Error(err)
	}
}

func FuzzKernel(f *testing.F) {
	f.Add("0.27 0.60 1.02 1/148 4711\nnvidia 56713216 1 - Live 0xffffffffc0000000 (POE)\n")
	f.Fuzz(func(_ *testing.T, s string) {
		_, _ = ParseLoadAverage(s)
		ParseModules(s)
	})
}

func TestKernelCommandLineHasNoSecrets(t *testing.T) {
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "proc"), 0o700); err != nil {
		t.Fatal(err)
	}
	line := "root=/dev/sda1 rd.iscsi.password=hunter2 x=http://u:p@h/ quiet\n"
	if err := os.WriteFile(filepath.Join(root, "proc", "cmdline"), []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	want := "root=/dev/sda1 rd.iscsi.password=[redacted] x=http://u:[redacted]@h/ quiet"
	if got, err := New(root).KernelCommandLine(); err != nil || got != want {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
}
