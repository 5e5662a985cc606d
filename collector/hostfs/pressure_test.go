package hostfs

import (
	"errors"
	"io/fs"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParsePressure(t *testing.T) {
	got, err := ParsePressure("some avg10=12.50 avg60=1.00 avg300=0.10 total=1500\nfull avg10=3.25 avg60=0.00 avg300=0.00 total=7\n")
	want := Pressure{Some: 12.5, Full: 3.25}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	if got, err := ParsePressure("some avg10=1.00 avg60=0.00 avg300=0.00 total=1\n"); err != nil || got.Some != 1 {
		t.Errorf("CPU before 5.13: %+v, %v", got, err)
	}
	for _, s := range []string{"", "full avg10=1.00", "some avg10=x", "some total=-1", "some\n"} {
		if got, err := ParsePressure(s); err == nil {
			t.Errorf("%q: %+v", s, got)
		}
	}
}

func TestParseMemInfo(t *testing.T) {
	got := ParseMemInfo("MemTotal:       24684100 kB\nHugePages_Total:       3\nbad\nx: y\n")
	if diff := cmp.Diff(map[string]uint64{"MemTotal": 24684100 << 10, "HugePages_Total": 3}, got); diff != "" {
		t.Error(diff)
	}
}

func FuzzPressure(f *testing.F) {
	f.Add("some avg10=12.50 avg60=1.00 avg300=0.10 total=1500\nMemTotal: 3 kB\n")
	f.Fuzz(func(_ *testing.T, s string) {
		_, _ = ParsePressure(s)
		ParseMemInfo(s)
	})
}

// Reads the memory cgroup of this process from the running kernel.
func TestMemoryCgroupOfThisProcess(t *testing.T) {
	f := FS{}
	layout, err := f.CgroupLayout()
	if err != nil {
		t.Fatal(err)
	}
	if layout.Unified == "" && len(layout.Controllers) == 0 {
		t.Skip("no cgroups here")
	}
	group, err := f.MemoryCgroup(layout, os.Getpid())
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	m, err := f.CgroupMemoryUse(layout, group)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("the root group of v2 counts nothing: %v", err)
	}
	if err != nil || m.Usage == 0 || m.Anon == 0 || m.WorkingSet() > m.Usage {
		t.Errorf("%s: %+v, %v", group, m, err)
	}
	pids, more, err := f.CgroupProcs(layout, group, 1<<20)
	if err != nil || more {
		t.Errorf("%d processes, %t, %v", len(pids), more, err)
	}
	found := false
	for _, pid := range pids {
		found = found || pid == os.Getpid()
	}
	if !found {
		t.Errorf("%s has not this process among %d", group, len(pids))
	}
	if pids, more, err := f.CgroupProcs(layout, "/", 1); err != nil || len(pids) != 1 || !more {
		t.Errorf("%d, %t, %v", pids, more, err)
	}
	if _, err := f.CgroupMemoryUse(layout, "/kernosis-no-such"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := f.CgroupMemoryUse(layout, "/../x"); !errors.Is(err, ErrPath) {
		t.Error(err)
	}
}
