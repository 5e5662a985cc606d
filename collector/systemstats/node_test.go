package systemstats

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// files returns the files of a node with Linux 6.12, shortened.
func files() map[string]string {
	return map[string]string{
		"proc/loadavg": "0.52 0.58 0.59 2/1013 12345\n",
		"proc/stat": `cpu  10132153 290696 3084719 46828483 16683 11 25195 175628 1 2
cpu0 1393280 32966 572056 13343292 6130 0 17875 23933 0 0
cpu7 1335498 28612 529564 13357315 3553 0 2450 22961 0 0
intr 199292722 121 9 0
ctxt 1990473
btime 1062191376
processes 2915
procs_running 3
procs_blocked 1
softirq 183433 0 21755 12 39 1137 231 21459 2263 1 2
`,
		"proc/meminfo": `MemTotal:       16316772 kB
MemFree:         1234567 kB
Buffers:          500000 kB
Cached:          4000000 kB
Active(anon):    3000001 kB
Inactive(anon):  2000002 kB
Active(file):    1000003 kB
Inactive(file):   900004 kB
Unevictable:       32005 kB
Dirty:               106 kB
Writeback:             7 kB
Slab:             800008 kB
`,
		"proc/uptime":               "350735.47 234388.90\n",
		"proc/sys/kernel/osrelease": "6.12.48+deb13-amd64\n",
		"etc/os-release":            "PRETTY_NAME=\"Debian GNU/Linux 13 (trixie)\"\nVERSION_ID=\"13\"\nVERSION=\"13 (trixie)\"\nID=debian\n",
		"proc/1/net/dev": `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
  eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16
cali1234: 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
`,
		"proc/1/stat": "", "proc/filesystems": "nodev\tsysfs\nnodev\ttmpfs\n\text4\n\txfs\nnodev\tzfs\n",
		"proc/1/mountinfo": "",
		"proc/diskstats": ` 259       0 nvme0n1 100 1 2000 30 400 5 6000 70 0 80 100 0 0 0 0 0 0
 259       1 nvme0n1p1 90 1 1800 27 390 5 5900 69 0 79 96 0 0 0 0 0 0
   1       0 ram0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
   7       0 loop0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
 253       0 dm-0 5 0 40 1 0 0 0 0 0 1 1 0 0 0 0 0 0
`,
		"sys/block/nvme0n1/size": "1000\n", "sys/block/nvme0n1/dev": "259:0\n",
		"sys/block/ram0/size": "1000\n", "sys/block/ram0/dev": "1:0\n",
		"sys/block/loop0/size": "0\n", "sys/block/loop0/dev": "7:0\n",
		"sys/block/dm-0/size": "8\n", "sys/block/dm-0/dev": "253:0\n",
		"sys/dev/block/259:1": "-> ../../devices/nvme0n1/nvme0n1p1",
		"proc/cmdline":        "BOOT_IMAGE=/vmlinuz csm.enabled=1 module.sig_enforce=1 loadpin.enabled=1 dyndbg=\"file a.c +p; x=1\" quiet\n",
		"proc/modules": `nf_nat 61440 2 xt_MASQUERADE,iptable_nat, Live 0x0000000000000000
nvidia 61440 2 - Live 0x0000000000000000 (POE)
zfs 61440 2 - Live 0x0000000000000000 (PO)
known 61440 2 - Live 0x0000000000000000 (OE)
unsigned 61440 2 - Live 0x0000000000000000 (E)
`,
		"sys/fs/cgroup/cgroup.controllers": "cpu\n",
		"known-modules.json":               `[{"moduleName": "known"}, {"moduleName": "other"}]`,
	}
}

func TestMetricsOfANode(t *testing.T) {
	cfg := node(t, files())
	cfg.IncludeRootBlk, cfg.ExcludeInterfaceRegexp = true, "^(cali|tunl|veth)"
	cfg.KnownModulesConfigPath = filepath.Join(cfg.Root, "known-modules.json")
	got := exposed(t, newCollector(t, cfg))
	golden := filepath.Join("testdata", "node.golden")
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestDevicesAreChosen(t *testing.T) {
	mounted := files()
	mounted["proc/1/mountinfo"] = `22 1 259:1 / / rw,relatime shared:1 - ext4 /dev/root rw
23 22 0:5 / /run rw - tmpfs none rw
24 22 253:9 / /data rw - xfs /dev/dm-9 rw
25 22 0:50 / /pool ro - zfs pool/set rw
`
	for _, c := range []struct {
		root, attached bool
		want           string
	}{
		{false, false, "dm-0 loop0 nvme0n1 nvme0n1p1 ram0"},
		{true, false, "dm-0 nvme0n1"},
		{false, true, "nvme0n1p1"},
		{true, true, "dm-0 nvme0n1 nvme0n1p1"},
	} {
		cfg := node(t, mounted)
		cfg.IncludeRootBlk, cfg.IncludeAllAttachedBlk = c.root, c.attached
		cfg.Metrics = map[string]string{"disk/io_time": "io"}
		var got []string
		for line := range strings.Lines(exposed(t, newCollector(t, cfg))) {
			if rest, ok := strings.CutPrefix(line, `io{device_name="`); ok {
				name, _, _ := strings.Cut(rest, `"`)
				got = append(got, name)
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("root %t, attached %t: %q, want %q", c.root, c.attached, got, c.want)
		}
	}
}

// TestLongMountLine has an overlay with so many layers that its line does not fit into a Scanner.
func TestLongMountLine(t *testing.T) {
	f := files()
	f["proc/1/mountinfo"] = "21 1 0:49 / /layers rw - overlay none rw,lowerdir=" + strings.Repeat("/layer:", 10_000) + "\n" +
		"22 1 259:1 / / rw,relatime - ext4 /dev/root rw\n"
	cfg := node(t, f)
	cfg.IncludeAllAttachedBlk = true
	if got := exposed(t, newCollector(t, cfg)); !strings.Contains(got, `disk_io_time{device_name="nvme0n1p1"} 79`+"\n") {
		t.Errorf("the other mount is missing in\n%s", got)
	}
}

// TestUsageOfAnotherFileSystem: a btrfs is mounted where the agent finds another file system.
func TestUsageOfAnotherFileSystem(t *testing.T) {
	f := files()
	f["proc/filesystems"] += "\tbtrfs\n"
	f["proc/1/mountinfo"] = "22 1 0:1048575 / / rw - btrfs /dev/nvme9n1 rw\n"
	got := exposed(t, newCollector(t, node(t, f)))
	if strings.Contains(got, "nvme9n1") || !strings.Contains(got, `kernosis_system_stats_errors_total{component="disk"} 1`) {
		t.Errorf("got\n%s", got)
	}
}

func TestQueueLengthIsOfTheLastInterval(t *testing.T) {
	cfg := node(t, files())
	cfg.Metrics = map[string]string{"disk/avg_queue_len": "disk/avg_queue_len"}
	weighted := func(ms int) {
		line := fmt.Sprintf("259 0 nvme0n1 0 0 0 0 0 0 0 0 0 0 %d 0 0 0 0 0 0\n", ms)
		if err := os.WriteFile(filepath.Join(cfg.ProcPath, "diskstats"), []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		weighted(1000)
		c := newCollector(t, cfg)
		want := func(want string) {
			t.Helper()
			_, got, _ := strings.Cut("\n"+exposed(t, c), "\ndisk_avg")
			got, _, _ = strings.Cut(got, "\n")
			if got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		want("")
		for _, step := range []struct {
			weighted int
			want     string
		}{{26000, "2.5"}, {26000, "0"}, {31000, "0.5"}, {100, "0"}, {10100, "1"}} {
			time.Sleep(10 * time.Second)
			weighted(step.weighted)
			c.Sample()
			want(`_queue_len{device_name="nvme0n1"} ` + step.want)
		}
	})
}

func TestSubjectsAreBounded(t *testing.T) {
	f := files()
	var dev strings.Builder
	dev.WriteString("Inter-|   Receive\n face |bytes\n")
	for i := range maxSubjects + 23 {
		fmt.Fprintf(&dev, "veth%05d: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n", i)
	}
	f["proc/1/net/dev"] = dev.String()
	cfg := node(t, f)
	cfg.Metrics = map[string]string{"net/rx_bytes": "net/rx_bytes"}
	text := exposed(t, newCollector(t, cfg))
	if n := strings.Count(text, "net_rx_bytes{"); n != maxSubjects {
		t.Errorf("%d interfaces", n)
	}
	if !strings.Contains(text, `kernosis_system_stats_left_out{component="net"} 23`) {
		t.Errorf("not reported: %.500s", text)
	}
}

// TestWhatIsMissingLeavesTheRest removes the files one after the other: the rest is still
// reported.
func TestWhatIsMissingLeavesTheRest(t *testing.T) {
	for file, component := range map[string]string{
		"proc/loadavg": "cpu", "proc/stat": "cpu", "proc/meminfo": "memory", "proc/uptime": "host", "etc/os-release": "host",
		"proc/diskstats": "disk", "proc/1/net/dev": "net", "proc/cmdline": "osFeature", "proc/filesystems": "disk",
	} {
		f := files()
		delete(f, file)
		text := exposed(t, newCollector(t, node(t, f)))
		if want := fmt.Sprintf("kernosis_system_stats_errors_total{component=%q} 1\n", component); !strings.Contains(text, want) {
			t.Errorf("without %s: no %s", file, want)
		}
		if n := strings.Count(text, "kernosis_system_stats_errors_total{"); n != 1 {
			t.Errorf("without %s: %d components have errors", file, n)
		}
		if strings.Count(text, "\n") < 40 {
			t.Errorf("without %s only this is reported:\n%s", file, text)
		}
	}
	for file, content := range map[string]string{"proc/meminfo": "MemTotal: x kB\n", "proc/stat": "cpu x\n", "proc/uptime": "soon\n", "proc/loadavg": "\n", "proc/modules": "\n \nshort 1\n"} {
		f := files()
		f[file] = content
		newCollector(t, node(t, f))
	}
}
