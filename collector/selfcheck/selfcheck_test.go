package selfcheck

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/event"
)

func TestResult(t *testing.T) {
	if d := Result(nil); d != (event.CheckData{Check: Check, Status: event.CheckOK}) {
		t.Errorf("of nothing: %+v", d)
	}
	lacks := []Lack{
		{Part: "oomkill", Reason: MissingRights, Lacks: "CAP_BPF", Unseen: "OOM kills"},
		{Part: "log/kmsg", Reason: MissingHostPath, Lacks: "/dev/kmsg", Unseen: "the kernel's log"},
		{Part: "diskio", Reason: MissingRights, Lacks: "CAP_BPF", Unseen: "disk I/O errors"},
	}
	want := event.CheckData{
		Check: Check, Status: event.CheckProblem, Reason: "MissingHostPath",
		Message: "not visible without CAP_BPF: OOM kills, disk I/O errors; without /dev/kmsg: the kernel's log",
	}
	if d := Result(lacks); d != want {
		t.Errorf("got %+v\nwant %+v", d, want)
	}
	lacks = append(lacks, Lack{Reason: ProgramsNotLoaded, Lacks: strings.Repeat("x", 2000)})
	if d := Result(lacks); d.Reason != "ProgramsNotLoaded" || len(d.Message) > maxMessage+4 {
		t.Errorf("got %s, %d bytes", d.Reason, len(d.Message))
	}
}

// A root with everything that is checked, as created by the test.
func TestPathsOfTheHost(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"proc/1", "var/log", "run/containerd"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "proc/1/stat"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c := New(Config{
		HostRoot: root, Runtime: []string{"/run/crio"},
		Logs: []Log{
			{"kmsg", "kmsg", filepath.Join(root, "dev/kmsg")}, {"later", "file", "/var/log/later.log"}, {"app", "file", "/srv/app/app.log"},
			{"all", "file", "/srv/*/x.log"}, {"journal", "journald", ""}, {"crash", "crash", ""},
		},
	})
	got := of(c.Look())
	want := []string{"devices " + root + "/sys (the node's)", "log/app " + root + "/srv/app", "log/crash " + root + "/sys/fs", "log/journal " + root + "/usr/bin/journalctl", "log/kmsg " + root + "/dev/kmsg", "runtime " + root + "/run/crio"}
	if !slices.Equal(got, want) {
		t.Errorf("lacking %q\nwant %q", got, want)
	}
	// What comes back is detected.
	for _, dir := range []string{"srv/app", "usr/bin", "run/crio", "dev", "sys/block", "sys/fs", "var/lib"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"usr/bin/journalctl", "dev/kmsg"} {
		if err := os.WriteFile(filepath.Join(root, file), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := of(c.Look()), []string{"log/journal " + root + "/var/log/journal"}; !slices.Equal(got, want) {
		t.Errorf("lacking %q\nwant %q", got, want)
	}
}

// of returns the lacks of paths: others depend on the user that runs the tests.
func of(lacks []Lack) (out []string) {
	for _, l := range lacks {
		if l.Reason == MissingHostPath && l.Part != "processes" {
			out = append(out, l.Part+" "+l.Lacks)
		}
	}
	slices.Sort(out)
	return out
}

// Only journalctl in another root needs the right to chroot.
func TestChrootForTheJournal(t *testing.T) {
	none := func(names ...string) []string { return names }
	folder, other := t.TempDir(), t.TempDir()
	for _, dir := range []string{"usr/bin/journalctl", "journal"} {
		if err := os.MkdirAll(filepath.Join(other, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if l := New(Config{HostRoot: other}).journal("log/j", "/journal", none, "x"); l == nil || l.Lacks != "CAP_SYS_CHROOT" {
		t.Errorf("in another root: %+v", l)
	}
	if _, err := exec.LookPath("/usr/bin/journalctl"); err != nil {
		t.Skip(err)
	}
	for _, root := range []string{"", "/"} {
		if l := New(Config{HostRoot: root}).journal("log/j", folder, none, "x"); l != nil {
			t.Errorf("host root %q: %+v", root, *l)
		}
	}
}

// The self-check reports a kubelet that refuses its pods, but not one that is down.
func TestPodsOfKubelet(t *testing.T) {
	for err, want := range map[error]int{nil: 0, unix.ECONNREFUSED: 0, fmt.Errorf("ask kubelet: %w", fs.ErrPermission): 1} {
		lacks := slices.DeleteFunc(New(Config{Pods: func() error { return err }}).Look(), func(l Lack) bool { return l.Part != "pods" })
		if len(lacks) != want || want > 0 && (lacks[0].Reason != MissingRights || lacks[0].Why != err.Error()) {
			t.Errorf("%v: %+v", err, lacks)
		}
	}
}

func TestUnwritable(t *testing.T) {
	for err, want := range map[error]bool{
		unix.EROFS: true, unix.EACCES: true, fs.ErrNotExist: true, &fs.PathError{Err: unix.EPERM}: true,
		unix.ENOSPC: true, unix.EDQUOT: true, &fs.PathError{Err: unix.EIO}: true, errors.New("damaged"): false, nil: false,
	} {
		if got := Unwritable(err); got != want {
			t.Errorf("%v: %t", err, got)
		}
	}
}

func TestStems(t *testing.T) {
	failed := errors.New("verifier: no")
	c := New(Config{Stems: []Stem{{"oomkill", nil}, {"diskio", failed}, {"sockfail", failed}}})
	all := func(...string) []string { return nil }
	none := func(names ...string) []string { return names }
	noBPF := func(names ...string) []string {
		return slices.DeleteFunc(names, func(n string) bool { return n != "CAP_SYS_ADMIN" && n != "CAP_BPF" })
	}
	for _, test := range []struct {
		have func(...string) []string
		want []Lack
	}{
		{none, []Lack{
			{"diskio", MissingRights, "CAP_BPF, CAP_PERFMON", "verifier: no", "disk I/O errors"},
			{"sockfail", MissingRights, "CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN", "verifier: no", "failed connections"},
		}},
		{noBPF, []Lack{
			{"diskio", MissingRights, "CAP_BPF", "verifier: no", "disk I/O errors"},
			{"sockfail", MissingRights, "CAP_BPF", "verifier: no", "failed connections"},
		}},
	} {
		var got []Lack
		for _, l := range c.stems(test.have) {
			got = append(got, *l)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("got %+v\nwant %+v", got, test.want)
		}
	}
	if !hasBTF() {
		t.Skip("the kernel has no BTF: that is lacking then")
	}
	for _, l := range c.stems(all) {
		if l.Reason != ProgramsNotLoaded || l.Why != "verifier: no" {
			t.Errorf("got %+v", l)
		}
	}
}
