package hostfs

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite golden files")

// TestGolden reads everything in a fixture and compares it with testdata/<name>.golden.
func TestGolden(t *testing.T) {
	for _, name := range fixtures {
		t.Run(name, func(t *testing.T) {
			got := report(t, fixture(t, name))
			file := filepath.Join("testdata", name+".golden")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s differs, see -update (-want +got):\n%s", file, diff)
			}
		})
	}
}

func report(t *testing.T, f FS) string {
	var b strings.Builder
	section := func(s string) { fmt.Fprintf(&b, "\n== %s\n", s) }
	p := func(v any, err error) {
		if err != nil {
			v = "error: " + strings.ReplaceAll(err.Error(), f.root, "")
		}
		fmt.Fprintf(&b, "%+v\n", v)
	}

	section("mounts")
	table, err := f.MountTable()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range table.Mounts() {
		fmt.Fprintf(&b, "%d:%d %q root=%q type=%s source=%s", m.Major, m.Minor, m.Path, m.Root, m.FSType, m.Source)
		fmt.Fprintf(&b, " ro=%t superRO=%t emergency=%t shutdown=%t errors=%q\n",
			m.MountReadOnly, m.SuperReadOnly, m.EmergencyRO, m.Shutdown, m.ErrorsPolicy)
	}

	section("block devices")
	devices := NewDevices(f)
	devices.SetMounts(table)
	links, err := os.ReadDir(f.Path("/sys/dev/block"))
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		var major, minor uint32
		if _, err := fmt.Sscanf(l.Name(), "%d:%d", &major, &minor); err != nil {
			t.Fatal(err)
		}
		p(devices.Device(major, minor), nil)
	}
	p(devices.Device(8, 99), nil)
	fmt.Fprint(&b, "bio-based: ")
	p(f.BioBased())
	fmt.Fprint(&b, "backing file of loop3: ")
	p(f.LoopBackingFile("loop3"))

	section("processes")
	pids, err := f.PIDs()
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		p(f.Stat(pid))
		p(f.Task(pid))
		p(f.Comm(pid))
		p(f.Cmdline(pid))
		p(f.NetNS(pid))
		p(f.ListenOverflows(pid))
		groups, err := f.ProcCgroups(pid)
		p(groups, err)
		for _, g := range groups {
			if a, ok := ParseCgroupPath(g.Path); ok {
				fmt.Fprintf(&b, "  owner %+v\n", a)
			}
		}
	}
	fmt.Fprint(&b, "network namespaces: ")
	p(f.NetNamespaces(10))

	section("cgroups")
	layout, err := f.CgroupLayout()
	p(layout, err)
	for _, path := range []string{
		"/", "/web", "…/web", "/../../etc",
		"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0f6d5b2e_7c1a_4e0b_9a53_2f1c8e4d7b60.slice",
		"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0f6d5b2e_7c1a_4e0b_9a53_2f1c8e4d7b60.slice/" +
			"cri-containerd-4c01db0b339c5a8f2ab62b4cd8d1a1f0a2d2e0a7a4f1c9b96ed8c1b7c3f0e2d5.scope",
	} {
		fmt.Fprintf(&b, "%s\n  memory limit ", path)
		p(f.CgroupMemoryLimit(layout, path))
		fmt.Fprint(&b, "  cpu ")
		p(f.CgroupCPU(layout, path))
	}

	section("symbols")
	p(f.Ranges("mem_cgroup_out_of_memory", "oom_kill_process", "no_such"))

	section("facts")
	p(f.Sysctl("kernel.hung_task_timeout_secs"))
	p(f.Sysctl("kernel/hung_task_timeout_secs"))
	p(f.Sysctl("kernel.no_such"))
	p(f.Sysctl("../1/stat"))
	caps, err := f.EffectiveCaps()
	p(caps, err)
	p(caps.Missing("CAP_BPF", "perfmon", "CAP_SYS_ADMIN", "CAP_SYS_RESOURCE", "CAP_NO_SUCH"), nil)
	return b.String()
}
