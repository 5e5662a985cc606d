package main

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/vmtest/kernel"
)

// stream returns the output of go tool test2json for a run: "action test output".
func stream(t *testing.T, lines ...[3]string) io.Reader {
	t.Helper()
	var b bytes.Buffer
	for _, l := range lines {
		if err := json.NewEncoder(&b).Encode(testEvent{Action: l[0], Test: l[1], Output: l[2]}); err != nil {
			t.Fatal(err)
		}
	}
	return &b
}

func read(t *testing.T, name string, code int, why string, lines ...[3]string) *results {
	t.Helper()
	for _, s := range suites() {
		if s.name != name {
			continue
		}
		var log strings.Builder
		r := newReader(s, &log)
		if err := r.read(stream(t, lines...)); err != nil {
			t.Fatal(err)
		}
		for _, l := range lines {
			if !strings.Contains(log.String(), l[2]) {
				t.Errorf("the log lacks %q", l[2])
			}
		}
		r.end(code, why)
		return r.results
	}
	t.Fatalf("no suite %s", name)
	return nil
}

func check(t *testing.T, r *results, want map[key]cell) {
	t.Helper()
	if !maps.Equal(r.cells, want) {
		t.Errorf("got %+v\nwant %+v", r.cells, want)
	}
	if len(r.order) != len(want) {
		t.Errorf("%d lines in order, want %d", len(r.order), len(want))
	}
}

func TestLinesOfFaults(t *testing.T) {
	check(t, read(t, "faults", 1, "exit status 1",
		[3]string{"run", "TestOOMKill", ""},
		[3]string{"run", "TestOOMKill/memcg-v2", ""},
		[3]string{"output", "TestOOMKill/memcg-v2", "    oomkill_test.go:9: 22 events, want 23\n"},
		[3]string{"output", "TestOOMKill/memcg-v2", "    oomkill_test.go:10: and more\n"},
		[3]string{"fail", "TestOOMKill/memcg-v2", ""},
		[3]string{"run", "TestOOMKill/global", ""},
		[3]string{"pass", "TestOOMKill/global", ""},
		[3]string{"fail", "TestOOMKill", ""},
		[3]string{"run", "TestFSError/btrfs-error", ""},
		[3]string{"output", "TestFSError/btrfs-error", "    main_test.go:80: n/a: CONFIG_BTRFS_FS is not set\n"},
		[3]string{"skip", "TestFSError/btrfs-error", ""},
		[3]string{"pass", "TestFSError", ""},
	), map[key]cell{
		{"oomkill", "memcg-v2"}:    {failed, "TestOOMKill/memcg-v2: 22 events, want 23"},
		{"oomkill", "global"}:      {state: passed},
		{"fserror", "btrfs-error"}: {notApplicable, "CONFIG_BTRFS_FS"},
	})
}

// A fault may be skipped because of the kernel's configuration, and for no other reason.
func TestOtherSkipsAreFailures(t *testing.T) {
	check(t, read(t, "faults", 0, "",
		[3]string{"run", "TestDiskIO/dm-error", ""},
		[3]string{"output", "TestDiskIO/dm-error", "    diskio_test.go:9: dmsetup is missing\n"},
		[3]string{"skip", "TestDiskIO/dm-error", ""},
	), map[key]cell{
		{"faults", "skipped tests"}: {failed, "1 skipped, at most 0 may be: TestDiskIO/dm-error: dmsetup is missing"},
	})
}

func TestSetUpOfAStemHasALine(t *testing.T) {
	check(t, read(t, "faults", 1, "exit status 1",
		[3]string{"run", "TestDiskIO", ""},
		[3]string{"output", "TestDiskIO", "    agent.go:9: no sources within 1m0s\n"},
		[3]string{"fail", "TestDiskIO", ""},
	), map[key]cell{{"diskio", "set-up"}: {failed, "TestDiskIO: no sources within 1m0s"}})
}

// Tests that were running when the machine died have failed, and so has a machine that died with no
// test running.
func TestMachineThatDied(t *testing.T) {
	const why = "the machine (6.1, tcg) died after 9s: Kernel panic - not syncing: x"
	check(t, read(t, "faults", 125, why,
		[3]string{"run", "TestOOMKill", ""},
		[3]string{"run", "TestOOMKill/global", ""},
	), map[key]cell{{"oomkill", "global"}: {failed, "TestOOMKill/global: " + why}})
	check(t, read(t, "faults", 125, why,
		[3]string{"run", "TestOOMKill/global", ""},
		[3]string{"pass", "TestOOMKill/global", ""},
	), map[key]cell{{"oomkill", "global"}: {state: passed}, {"faults", "the machine"}: {failed, why}})
}

func TestLinesOfPackages(t *testing.T) {
	check(t, read(t, "variants", 1, "",
		[3]string{"pass", "TestEveryVariantAlone/oomkill/victim_raw", ""},
		[3]string{"output", "TestEveryVariantAlone/oomkill/context_kp", "    open_test.go:7: absent\n"},
		[3]string{"fail", "TestEveryVariantAlone/oomkill/context_kp", ""},
		[3]string{"fail", "TestEveryVariantAlone/oomkill", ""},
		[3]string{"pass", "TestEveryVariantAlone/diskio/bio_raw", ""},
		[3]string{"fail", "TestEveryVariantAlone", ""},
	), map[key]cell{
		{"oomkill", "every variant loads and attaches"}: {failed, "TestEveryVariantAlone/oomkill/context_kp: absent"},
		{"diskio", "every variant loads and attaches"}:  {state: passed},
	})
	r := read(t, "bpf", 0, "",
		[3]string{"pass", "TestRing", ""},
		[3]string{"output", "TestZram", "    diskio_test.go:4: needs zram\n"},
		[3]string{"skip", "TestZram", ""},
	)
	check(t, r, map[key]cell{{"all", "programs, rings and pins"}: {state: passed}})
	if !slices.Equal(r.skipped, []string{"TestZram: needs zram"}) {
		t.Errorf("skipped %q", r.skipped)
	}
}

func TestTable(t *testing.T) {
	kernels := []kernel.Image{{Name: "5.10", Release: "5.10.0-1", Package: "p", Version: "5.10.1"}, {Name: "6.1", Release: "6.1.0-1", Package: "p", Version: "6.1.2"}}
	faults := suites()[0]
	outcomes := []outcome{
		{job: job{suite: faults, kernel: kernel.Kernel{Name: "5.10"}}, results: read(t, "faults", 0, "",
			[3]string{"pass", "TestOOMKill/global", ""},
			[3]string{"output", "TestHungTask/mutex", "    x_test.go:1: n/a: CONFIG_HUNG is not set\n"}, [3]string{"skip", "TestHungTask/mutex", ""})},
		{job: job{suite: faults, kernel: kernel.Kernel{Name: "6.1"}}, results: read(t, "faults", 1, "",
			[3]string{"output", "TestOOMKill/global", "    x_test.go:1: 22 | 23\n"}, [3]string{"fail", "TestOOMKill/global", ""},
			[3]string{"pass", "TestHungTask/mutex", ""}, [3]string{"pass", "TestOOMKill/ancestor", ""})},
	}
	table := newTable(kernels, outcomes)
	var b strings.Builder
	if err := table.print(&b); err != nil {
		t.Fatal(err)
	}
	want := `stem      fault     5.10     6.1       
oomkill   ancestor  –        ok        
oomkill   global    ok       FAIL [1]  
hungtask  mutex     n/a [2]  ok        
[1] TestOOMKill/global: 22 | 23
[2] CONFIG_HUNG is not set
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
	if n := table.failures(); n != 1 {
		t.Errorf("%d failures, want 1", n)
	}
	for _, want := range []string{
		"| 6.1 | 6.1.0-1 | p | 6.1.2 |\n", "| stem | fault | 5.10 | 6.1 |\n|---|---|---|---|\n| oomkill | ancestor | – | ok |\n| oomkill | global | ok | FAIL [1] |\n",
		"[1] TestOOMKill/global: 22 \\| 23\n",
	} {
		if page := table.markdown(); !strings.Contains(page, want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
}

func TestJoinedFaults(t *testing.T) {
	got := joined([][]string{{"stem", "fault", "6.1"}, {"a", "x", "ok"}, {"a", "y", "–"}, {"a", "z", "ok"}, {"b", "x", "ok"}})
	want := [][]string{{"stem", "fault", "6.1"}, {"a", "x; z", "ok"}, {"a", "y", "–"}, {"b", "x", "ok"}}
	if !slices.EqualFunc(got, want, slices.Equal[[]string]) {
		t.Errorf("got %q, want %q", got, want)
	}
}
