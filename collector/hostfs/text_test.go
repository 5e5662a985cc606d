package hostfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParseListenOverflows(t *testing.T) {
	lines := strings.NewReplacer("A", "ListenOverflows").Replace
	const good = "IpExt: A B\nIpExt: 9 9\nTcpExt: B A\nTcpExt: 1 2\n"
	if got, err := parseListenOverflows(lines(good)); err != nil || got != 2 {
		t.Errorf("%v, %v", got, err)
	}
	for name, s := range map[string]string{
		"empty": "", "no values": "TcpExt: A B\n", "uneven": "TcpExt: A B\nTcpExt: 1\n",
		"no number": "TcpExt: A B\nTcpExt: x 1\n", "not there": "TcpExt: B C\nTcpExt: 1 2\n", "other": "IpExt: A B\nIpExt: 1 2\n",
	} {
		if got, err := parseListenOverflows(lines(s)); err == nil {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestCgroupCPULimit(t *testing.T) {
	f := New(t.TempDir())
	put := func(p, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(f.Path(p)), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, f, p, text)
	}
	v1 := CgroupLayout{Controllers: map[string]string{"cpu": "/v1"}}
	v2 := CgroupLayout{Unified: "/v2"}
	put("/v1/a/cpu.cfs_quota_us", "20000\n")
	put("/v1/a/cpu.cfs_period_us", "100000\n")
	put("/v1/b/cpu.cfs_quota_us", "-1\n")
	put("/v1/b/cpu.cfs_period_us", "100000\n")
	put("/v2/a/cpu.max", "20000 100000\n")
	put("/v2/b/cpu.max", "max 100000\n")
	put("/v2/c/cgroup.procs", "")
	put("/v2/d/cpu.max", "20000\n")
	put("/v2/e/cpu.max", "x 100000\n")
	const period = 100 * time.Millisecond
	for _, c := range []struct {
		l    CgroupLayout
		path string
		want CgroupCPULimit
		ok   bool
	}{
		{v1, "/a", CgroupCPULimit{20 * time.Millisecond, period}, true},
		{v1, "/b", CgroupCPULimit{0, period}, true},
		{v1, "/none", CgroupCPULimit{}, false},
		{v2, "/a", CgroupCPULimit{20 * time.Millisecond, period}, true},
		{v2, "/b", CgroupCPULimit{0, period}, true},
		{v2, "/c", CgroupCPULimit{}, true},
		{v2, "/d", CgroupCPULimit{}, false},
		{v2, "/e", CgroupCPULimit{}, false},
		{v2, "/../a", CgroupCPULimit{}, false},
	} {
		got, err := f.CgroupCPULimit(c.l, c.path)
		if (err == nil) != c.ok || c.ok && got != c.want {
			t.Errorf("%v %s: %+v, %v", c.l, c.path, got, err)
		}
	}
}

func TestNetCounters(t *testing.T) {
	f := New(t.TempDir())
	write := func(name, text string) {
		t.Helper()
		p := f.Path("/proc/7/net/" + name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write("netstat", "TcpExt: A B\nTcpExt: 1 18446744073709551615\nIpExt: A\nIpExt: 3\n")
	write("snmp", "Tcp: MaxConn InSegs\nTcp: -1 5\n")
	got, err := f.NetCounters(7)
	if err != nil || len(got) != 4 || got["TcpExt.B"] != 1<<64-1 || got["IpExt.A"] != 3 || got["Tcp.InSegs"] != 5 {
		t.Errorf("%v, %v", got, err)
	}
	write("snmp6", "Ip6InDiscards   \t2\nUdpLite6InErrors 4\n")
	if got, err = f.NetCounters(7); err != nil || got["Ip6.InDiscards"] != 2 || got["UdpLite6.InErrors"] != 4 {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"Tcp: A\nUdp: 1\n", "Tcp: A\nTcp: 1 2\n", "Tcp: A\nTcp: x\n", "none\n"} {
		write("snmp", bad)
		if got, err := f.NetCounters(7); err == nil {
			t.Errorf("%q: %v", bad, got)
		}
	}
}

func FuzzNetCounters(f *testing.F) {
	f.Add("TcpExt: A ListenOverflows\nTcpExt: 1 2\n")
	f.Fuzz(func(_ *testing.T, s string) {
		into := map[string]uint64{}
		_ = parseNetCounters(s, into)
		_ = parseSNMP6(s, into)
		_, _ = parseListenOverflows(s)
	})
}

func TestParseKeyed(t *testing.T) {
	a, b := uint64(7), uint64(7)
	into := map[string]*uint64{"a": &a, "b": &b}
	if err := parseKeyed("x y\na 18446744073709551615\nalone\n", into); err != nil || a != 1<<64-1 || b != 7 {
		t.Errorf("a = %d, b = %d, error %v", a, b, err)
	}
	if err := parseKeyed("a max\n", into); err == nil {
		t.Error("max was taken for a number")
	}
}

func FuzzParseKeyed(f *testing.F) {
	f.Add("oom 1\noom_kill 3\n")
	f.Fuzz(func(_ *testing.T, s string) {
		var n uint64
		_ = parseKeyed(s, map[string]*uint64{"oom_kill": &n})
	})
}

func TestCaps(t *testing.T) {
	p, err := ParseProcStatus("Threads:\t1\nCapPrm:\t0000000000000000\nCapEff:\t000000c001000000\nCapBnd:\t000001ffffffffff\n")
	if err != nil {
		t.Fatal(err)
	}
	c := p.CapEff
	if got := c.Missing("CAP_BPF", "cap_perfmon", "SYS_RESOURCE"); got != nil {
		t.Errorf("missing %v", got)
	}
	if got := c.Missing("CAP_SYS_ADMIN", "CAP_BPF", "nonsense"); !slices.Equal(got, []string{"CAP_SYS_ADMIN", "nonsense"}) {
		t.Errorf("missing %v", got)
	}
	if all := capNames(); len(all) != 41 || all[21] != "SYS_ADMIN" || all[39] != "BPF" {
		t.Error("capability numbers are off")
	}
}

func TestSysctlName(t *testing.T) {
	f := fixture(t, "6.18-hybrid")
	for _, name := range []string{"", "/", "..", "../1/stat", "kernel/../../1/stat", "a\x00b"} {
		if v, err := f.Sysctl(name); !errors.Is(err, ErrPath) {
			t.Errorf("Sysctl(%q) = %q, %v", name, v, err)
		}
	}
	if err := os.MkdirAll(f.Path("/proc/sys/net/ipv4/conf/eth0.1"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, f, "/proc/sys/net/ipv4/conf/eth0.1/rp_filter", "2\n")
	if v, err := f.Sysctl("net/ipv4/conf/eth0.1/rp_filter"); err != nil || v != "2" {
		t.Errorf("%q, %v", v, err)
	}
}

func TestCgroupLayoutModes(t *testing.T) {
	v1 := Mount{Root: "/", Path: "/cg/memory", FSType: "cgroup", SuperOptions: "rw,memory"}
	part := Mount{Root: "/docker/x", Path: "/part/memory", FSType: "cgroup", SuperOptions: "rw,memory"}
	named := Mount{Root: "/", Path: "/cg/systemd", FSType: "cgroup", SuperOptions: "rw,xattr,name=systemd"}
	v2 := Mount{Root: "/", Path: "/cg", FSType: "cgroup2"}
	tests := []struct {
		mounts []Mount
		v2     string
		memory string
	}{
		{nil, "", ""},
		{[]Mount{v1}, "", "/cg/memory"},
		{[]Mount{part, v1}, "", "/cg/memory"},
		{[]Mount{part}, "", "/part/memory"},
		{[]Mount{v2, v1}, "/cg", "/cg/memory"},
		{[]Mount{v2, named}, "/cg", ""},
		{[]Mount{v2}, "/cg", ""},
	}
	for _, tt := range tests {
		l := cgroupLayout(tt.mounts)
		if l.Unified != tt.v2 || len(l.Controllers) > 1 || l.Controllers["memory"] != tt.memory {
			t.Errorf("%v: %+v", tt.mounts, l)
		}
		if _, _, err := l.dir("memory", "/a"); (err != nil) != (tt.v2 == "" && tt.memory == "") {
			t.Errorf("%v: dir: %v", tt.mounts, err)
		}
	}
}

func TestPath(t *testing.T) {
	for _, tt := range [][3]string{
		{"", "/proc/1", "/proc/1"}, {"/", "proc", "/proc"}, {"/host", "/proc", "/host/proc"},
		{"/host/", "/proc/../../..", "/host/"}, {"host", "/sys", "host/sys"},
	} {
		if got := New(tt[0]).Path(tt[1]); got != tt[2] {
			t.Errorf("New(%q).Path(%q) = %q, want %q", tt[0], tt[1], got, tt[2])
		}
	}
}

func TestReadBounds(t *testing.T) {
	f := New(t.TempDir())
	write(t, f, "/full", strings.Repeat("1", smallFile))
	if s, err := f.read("/full", smallFile); err != nil || len(s) != smallFile {
		t.Errorf("%d bytes, %v", len(s), err)
	}
	if _, err := f.read("/full", smallFile-1); err == nil {
		t.Error("a file above the limit was read")
	}
	write(t, f, "/word", "word")
	if n, err := f.readUint("/word"); err == nil {
		t.Errorf("word was taken for %d", n)
	}
	if _, err := f.readValue("/none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error = %v", err)
	}
}

func TestLockedDown(t *testing.T) {
	for text, want := range map[string]bool{
		"[none] integrity confidentiality\n": false, "none integrity [confidentiality]\n": true, "": false,
	} {
		root := t.TempDir()
		dir := filepath.Join(root, "sys/kernel/security")
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "lockdown"), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
		if got := New(root).LockedDown(); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
