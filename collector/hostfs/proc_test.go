package hostfs

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const statTail = " S 1 2 3 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 250 0 0"

func TestParseStat(t *testing.T) {
	for _, comm := range []string{"sh", "", "a b", "(sd-pam)", ") R 1 (", "x\ny", "\x1b[0m", "\xff"} {
		got, err := ParseStat("42 (" + comm + ")" + statTail + "\n")
		want := Stat{PID: 42, Comm: comm, State: 'S', PPID: 1, StartTime: 2500 * time.Millisecond, CPU: -1}
		if err != nil || got != want {
			t.Errorf("comm %q: %+v, %v", comm, got, err)
		}
	}
	for _, s := range []string{
		"", "42", "(x)", "42 (x", "42(x)" + statTail, "x (x)" + statTail, "-1 (x)" + statTail, "42 (x) S 1", "42 )x(" + statTail,
		"42 (x)" + strings.Replace(statTail, "250", "99999999999999999999", 1),
		"42 (x)" + strings.Replace(statTail, "250", "9223372036854775807", 1),
		"42 (x)" + strings.Replace(statTail, " S ", " SS ", 1),
		"42 (x)" + strings.Replace(statTail, " 1 2 ", " -1 2 ", 1),
	} {
		if got, err := ParseStat(s); err == nil {
			t.Errorf("%q was taken for %+v", s, got)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add("42 (a b) c)" + statTail)
	f.Fuzz(func(t *testing.T, s string) {
		if st, err := ParseStat(s); err == nil && st.StartTime < 0 {
			t.Errorf("start time %v", st.StartTime)
		}
	})
}

func TestParseCmdline(t *testing.T) {
	long := strings.Repeat("a", maxCmdline)
	for in, want := range map[string]string{
		"": "", "a\x00": "a", "a\x00b\x00": "a b", "a\x00\x00b": "a  b", "a\n\x1b": `a\n\x1b`,
		long + "\x00": long, long + "bc": long + "…",
	} {
		if got := parseCmdline([]byte(in)); got != want {
			t.Errorf("parseCmdline(%.20q) = %.20q, want %.20q", in, got, want)
		}
	}
}

func TestParseProcCgroups(t *testing.T) {
	got, err := ParseProcCgroups("4:cpu,cpuacct:/a\n1:name=systemd:/b:c\n0::/x (deleted)\n")
	want := []ProcCgroup{{4, "cpu,cpuacct", "/a"}, {1, "name=systemd", "/b:c"}, {0, "", "/x"}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
	for _, s := range []string{"x::/\n", "0\n", "0:\n", "0:/\n", "-1::/\n", "0::relative\n"} {
		if got, err := ParseProcCgroups(s); err == nil {
			t.Errorf("%q was taken for %+v", s, got)
		}
	}
	if got, err := ParseProcCgroups(strings.Repeat("0::/\n", 1000)); err != nil || len(got) != maxProcCgroups {
		t.Errorf("%d lines, error %v", len(got), err)
	}
}

func FuzzParseProcCgroups(f *testing.F) {
	f.Add("4:memory:/a\n0::/x (deleted)\n")
	f.Fuzz(func(_ *testing.T, s string) {
		groups, _ := ParseProcCgroups(s)
		for _, g := range groups {
			ParseCgroupPath(g.Path)
		}
	})
}

func TestParseNetNS(t *testing.T) {
	if n, err := parseNetNS("net:[4026531840]"); err != nil || n != 4026531840 {
		t.Errorf("%d, %v", n, err)
	}
	for _, s := range []string{"", "mnt:[1]", "net:[1", "net:[]", "net:[-1]", "net:[4294967296]"} {
		if _, err := parseNetNS(s); err == nil {
			t.Errorf("%q was taken for a network namespace", s)
		}
	}
}

func TestNetNamespacesLimit(t *testing.T) {
	got, err := fixture(t, "6.12-systemd-v2").NetNamespaces(1)
	if want := []NetNamespace{{Inode: 4026531840, PID: 1}}; err != nil || !cmp.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
}

// Reads the running kernel's own files, whatever it is.
func TestSelf(t *testing.T) {
	var f FS
	pid := os.Getpid()
	task, err := f.Task(pid)
	if err != nil || task.TGID != uint32(pid) || task.UID != uint32(os.Getuid()) {
		t.Errorf("Task = %+v, %v", task, err)
	}
	if age := BootTime() - time.Duration(task.StartTime); age < 0 || age > time.Hour {
		t.Errorf("this process is %v old", age)
	}
	if _, err := f.ListenOverflows(pid); err != nil {
		t.Error(err)
	}
	inode, err := f.NetNS(pid)
	if err != nil {
		t.Error(err)
	}
	all, err := f.NetNamespaces(1 << 20)
	found := false
	for _, ns := range all {
		found = found || ns.Inode == inode
	}
	if err != nil || !found {
		t.Errorf("own namespace %d is not among %v, error %v", inode, all, err)
	}
	if _, err := f.ProcCgroups(pid); err != nil {
		t.Error(err)
	}
	if _, err := f.EffectiveCaps(); err != nil {
		t.Error(err)
	}
	if v, err := f.Sysctl("kernel.ostype"); err != nil || v != "Linux" {
		t.Errorf("kernel.ostype = %q, %v", v, err)
	}
	if _, err := f.Task(1 << 30); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("task that can't be: %v", err)
	}
}
