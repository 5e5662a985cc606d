package systemstats

import (
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/vmtest/testenv"
)

// values returns the exposed values by series, as written.
func values(t *testing.T, text string) map[string]float64 {
	t.Helper()
	all := map[string]float64{}
	for line := range strings.Lines(text) {
		i := strings.LastIndexByte(line, ' ')
		v, err := strconv.ParseFloat(strings.TrimSpace(line[i:]), 64)
		if err != nil {
			t.Fatal(err)
		}
		all[line[:i]] = v
	}
	return all
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestThisMachine compares the values with those of the kernel's files, read before and after.
func TestThisMachine(t *testing.T) {
	before := procValues(t)
	c := newCollector(t, Config{IncludeRootBlk: true, IncludeAllAttachedBlk: true})
	after := procValues(t)
	got := values(t, exposed(t, c))
	for series, low := range before {
		high, ok := after[series]
		v, reported := got[series]
		gone := !ok && strings.HasPrefix(series, "disk_") // a device of another test
		if !reported && !gone || ok && (v < low || v > high) {
			t.Errorf("%s: %v reported (%t), it is %v to %v", series, v, reported, low, high)
		}
	}
	if n := len(before); n < 25 {
		t.Errorf("only %d series were compared", n)
	}
	sum := 0.0
	for _, state := range []string{"free", "buffered", "cached", "slab", "used"} {
		sum += got[`memory_bytes_used{state="`+state+`"}`]
	}
	if total := field(t, read(t, "/proc/meminfo"), "MemTotal:") * 1024; sum != total {
		t.Errorf("memory sums up to %v of %v", sum, total)
	}
	for _, kind := range []string{"disk_operation_count{", "host_uptime{", "system_os_feature{", "cpu_load_1m"} {
		if !slices.ContainsFunc(keys(got), func(s string) bool { return strings.HasPrefix(s, kind) }) {
			t.Errorf("no %s", kind)
		}
	}
	for series, n := range got {
		if strings.HasPrefix(series, "kernosis_system_stats_errors_total") && n > 0 {
			t.Errorf("%s %v", series, n)
		}
	}
}

func keys(m map[string]float64) []string {
	all := make([]string, 0, len(m))
	for k := range m {
		all = append(all, k)
	}
	return all
}

func field(t *testing.T, text, name string) float64 {
	t.Helper()
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == name {
			v, err := strconv.ParseFloat(f[1], 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	t.Fatalf("no %s", name)
	return 0
}

// procValues reads counters that only grow directly from the files.
func procValues(t *testing.T) map[string]float64 {
	t.Helper()
	all := map[string]float64{}
	stat := read(t, "/proc/stat")
	all["system_processes_total"] = field(t, stat, "processes")
	all["system_interrupts_total"] = field(t, stat, "intr")
	cpu := strings.Fields(stat)[1:11]
	for i, state := range []string{"user", "nice", "system", "", "", "irq", "softirq", "steal", "guest", "guest_nice"} {
		if state == "" {
			continue // idle and iowait may decrease (Documentation/filesystems/proc.rst)
		}
		v, err := strconv.ParseFloat(cpu[i], 64)
		if err != nil {
			t.Fatal(err)
		}
		all[`cpu_usage_time{state="`+state+`"}`] = v
	}
	for i, line := range strings.Split(strings.TrimSpace(read(t, "/proc/1/net/dev")), "\n") {
		name, rest, ok := strings.Cut(line, ":")
		if i < 2 || !ok {
			continue
		}
		f := strings.Fields(rest)
		for at, metric := range map[int]string{0: "rx_bytes", 1: "rx_packets", 3: "rx_dropped", 8: "tx_bytes", 9: "tx_packets"} {
			v, err := strconv.ParseFloat(f[at], 64)
			if err != nil {
				t.Fatal(err)
			}
			all[`net_`+metric+`{interface_name="`+strings.TrimSpace(name)+`"}`] = v
		}
	}
	whole, err := filepath.Glob("/sys/block/*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range whole {
		device := filepath.Base(filepath.Dir(path))
		f := strings.Fields(readLine(path))
		if len(f) == 0 || readLine("/sys/block/"+device+"/size") == "0" || strings.HasPrefix(readLine("/sys/block/"+device+"/dev"), "1:") {
			continue // without counters: it has just been removed
		}
		for at, series := range map[int]string{0: `count{device_name="` + device + `",direction="read"}`, 4: `count{device_name="` + device + `",direction="write"}`} {
			v, err := strconv.ParseFloat(f[at], 64)
			if err != nil {
				t.Fatal(err)
			}
			all["disk_operation_"+series] = v
		}
	}
	return all
}

func TestWholeDisksAreThoseOfLsblk(t *testing.T) {
	c := newCollector(t, Config{Metrics: map[string]string{}})
	// Other tests attach and detach disks in the meantime.
	testenv.UntilShown(t, "the disks that lsblk lists", 20*time.Second, func() (bool, string) {
		out, err := exec.Command("lsblk", "--nodeps", "--noheadings", "--bytes", "--output", "KNAME,SIZE").Output()
		if err != nil {
			t.Skipf("lsblk: %v", err)
		}
		var want []string
		for line := range strings.Lines(string(out)) {
			// lsblk lists empty devices, except loop devices.
			if name, size, _ := strings.Cut(strings.TrimSpace(line), " "); strings.TrimSpace(size) != "0" {
				want = append(want, name)
			}
		}
		slices.Sort(want)
		disks, err := c.wholeDisks()
		if err != nil {
			t.Fatal(err)
		}
		got := slices.Sorted(maps.Keys(disks))
		return slices.Equal(got, want), fmt.Sprintf("%q, lsblk lists %q", got, want)
	})
}

func TestUsageIsThatOfStatfs(t *testing.T) {
	c := newCollector(t, Config{})
	mounts, err := c.mounts()
	if err != nil || len(mounts) == 0 {
		t.Skipf("no file system on a device here: %v", err)
	}
	m, _, err := c.askFirst(mounts[:1])
	if err != nil {
		t.Skipf("%v", err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(filepath.Join(c.root(), m.Path), &st); err != nil {
		t.Fatal(err)
	}
	got := values(t, exposed(t, c))
	labels := func(state string) string {
		return `{device_name="` + m.device + `",fs_type="` + m.FSType + `",mount_option="` + m.Options + `",state="` + state + `"}`
	}
	used := float64((st.Blocks - st.Bfree) * uint64(st.Bsize))
	free := float64(st.Bavail * uint64(st.Bsize))
	// Other processes write to it in the meantime.
	const slack = 1 << 30
	if v := got["disk_bytes_used"+labels("used")]; math.Abs(v-used) > slack {
		t.Errorf("used %v, it is %v: %v", v, used, got)
	}
	if v := got["disk_bytes_used"+labels("free")]; math.Abs(v-free) > slack {
		t.Errorf("free %v, it is %v", v, free)
	}
	if v := got["disk_percent_used"+labels("used")] + got["disk_percent_used"+labels("free")]; math.Abs(v-100) > 1e-9 {
		t.Errorf("%v percent", v)
	}
}

func TestRunReadsAtOnce(t *testing.T) {
	c, err := New(Config{Metrics: map[string]string{"cpu/load_1m": "l"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	testenv.Until(t, "something is read", 30*time.Second, func() bool { return strings.Contains(exposed(t, c), "l ") })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func BenchmarkSample(b *testing.B) {
	c, err := New(Config{Metrics: all(), IncludeRootBlk: true, IncludeAllAttachedBlk: true}, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		c.Sample()
	}
}
