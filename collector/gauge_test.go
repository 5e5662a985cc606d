package collector

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
)

// gaugeNode is a node whose files the test writes.
type gaugeNode struct {
	t    *testing.T
	root string
	g    *gaugeSource
}

func newGaugeNode(t *testing.T) *gaugeNode {
	t.Helper()
	n := &gaugeNode{t: t, root: t.TempDir()}
	n.write("/proc/meminfo", "MemTotal:       1000 kB\nMemFree:         50 kB\nMemAvailable:   400 kB\n")
	n.write("/proc/sys/fs/file-nr", "950\t0\t1000\n")
	n.write("/proc/loadavg", "0.27 0.60 1.02 1/148 4711\n")
	n.write("/proc/sys/kernel/pid_max", "4194304\n")
	n.write("/proc/sys/kernel/threads-max", "200\n")
	n.mounts()
	env := newEnvironment(Config{HostRoot: n.root}, slog.New(slog.DiscardHandler))
	t.Cleanup(func() { _ = env.close() })
	n.g = newGaugeSource(env)
	n.g.adjtimex = func(c *unix.Timex) (int, error) {
		c.Maxerror, c.Offset, c.Status = 2_000_000, -1_500_000, unix.STA_NANO
		return 0, nil
	}
	n.g.own = func() ([]hostfs.Mount, error) { return nil, nil }
	n.g.statfs = func(string, fsKey) (st unix.Statfs_t, err error) {
		st.Blocks, st.Bfree, st.Bavail, st.Frsize, st.Files, st.Ffree = 100, 50, 30, 1024, 64, 16
		return st, nil
	}
	return n
}

func (n *gaugeNode) write(path, text string) {
	n.t.Helper()
	path = filepath.Join(n.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		n.t.Fatal(err)
	}
}

// mounts writes the mount table: lines "8:1 / /data ext4 rw".
func (n *gaugeNode) mounts(lines ...string) {
	n.t.Helper()
	var text strings.Builder
	for i, line := range lines {
		f := strings.Fields(line)
		fmt.Fprintf(&text, "%d 1 %s %s %s rw - %s /dev/x%s %s\n", 20+i, f[0], f[1], f[2], f[3], f[0], f[4])
	}
	n.write("/proc/1/mountinfo", text.String())
}

// look returns what one reading reports, in lines.
func (n *gaugeNode) look() []string {
	var reported []string
	n.g.look(func(ev *event.Event) {
		switch {
		case ev.SourceUp != nil && ev.SourceUp.Up:
			reported = append(reported, ev.SourceUp.Stem+" up")
		case ev.SourceUp != nil:
			reported = append(reported, ev.SourceUp.Stem+" down: "+ev.SourceUp.Reason)
		case ev.Lost != nil:
			reported = append(reported, fmt.Sprintf("%s lost %d: %s", ev.Lost.Stem, ev.Lost.Count, ev.Lost.Reason))
		case ev.Gauge.Gone:
			reported = append(reported, ev.Gauge.Name+" gone of "+ev.Subject())
		default:
			reported = append(reported, fmt.Sprintf("%s %d of %d: %s", ev.Gauge.Name, ev.Gauge.Value, ev.Gauge.Limit, ev.Subject()))
		}
	})
	slices.Sort(reported)
	return reported
}

func (n *gaugeNode) want(want ...string) {
	n.t.Helper()
	slices.Sort(want)
	if diff := cmp.Diff(want, n.look()); diff != "" {
		n.t.Errorf("-want +reported:\n%s", diff)
	}
}

func TestGauges(t *testing.T) {
	n := newGaugeNode(t)
	single := []string{
		"memory 614400 of 1024000: memory", "files 950 of 1000: files", "pids 148 of 200: pids",
		"clock-error 2000000 of 16000000: clock-error", "clock-offset 1500 of 0: clock-offset",
	}
	var up []string
	for _, name := range event.Gauges() {
		up = append(up, "gauge/"+name+" up")
	}
	n.want(slices.Concat(single, up)...)
	n.want(single...)

	n.mounts("8:1 / / ext4 rw", "8:1 /etc /etc/x ext4 rw", "8:2 / /boot ext4 ro", "0:40 / /nfs nfs4 rw",
		"0:41 / /run tmpfs rw", "8:3 / /fuse fuseblk rw", "8:4 / /old xfs rw", "0:42 / /old tmpfs rw", "0:43 / /b btrfs rw")
	filesystems := []string{
		"inodes 48 of 64: 8:1 at /", "space 51200 of 81920: 8:1 at /",
		"inodes 48 of 64: x0:43 at /b", "space 51200 of 81920: x0:43 at /b",
	}
	n.want(slices.Concat(single, filesystems)...)

	// Mounted elsewhere as well, and then only there.
	n.mounts("8:1 / / ext4 rw", "0:43 / /c btrfs rw")
	n.want(slices.Concat(single, filesystems[:2], []string{"inodes 48 of 64: x0:43 at /c", "space 51200 of 81920: x0:43 at /c"})...)

	// Under another name of its device.
	n.write("/sys/class/block/x0:43/dev", "8:16\n")
	n.mounts("8:1 / / ext4 rw", "0:43 / /c btrfs rw")
	n.want(slices.Concat(single, filesystems[:2], []string{
		"inodes gone of x0:43 at /c", "space gone of x0:43 at /c", "inodes 48 of 64: 8:16 at /c", "space 51200 of 81920: 8:16 at /c",
	})...)

	n.mounts("8:1 / / ext4 rw")
	n.want(slices.Concat(single, filesystems[:2], []string{"inodes gone of 8:16 at /c", "space gone of 8:16 at /c"})...)
}

// TestGaugeUnreadable: a gauge that can't be read is a source that is down, and the others
// continue.
func TestGaugeUnreadable(t *testing.T) {
	n := newGaugeNode(t)
	n.look()
	n.write("/proc/meminfo", "MemTotal: 1000 kB\n")
	n.write("/proc/sys/fs/file-nr", "x 0 1\n")
	n.write("/proc/sys/kernel/threads-max", "\n")
	n.g.adjtimex = func(*unix.Timex) (int, error) { return -1, unix.EPERM }
	n.want(
		"gauge/memory down: meminfo: MemTotal or MemAvailable is missing",
		`gauge/files down: sysctl fs.file-nr: strconv.ParseUint: parsing "x": invalid syntax`,
		`gauge/pids down: sysctl kernel.threads-max: strconv.ParseUint: parsing "": invalid syntax`,
		"gauge/clock-error down: operation not permitted", "gauge/clock-offset down: operation not permitted",
	)
	n.want() // reported once
	n.write("/proc/sys/fs/file-nr", "950\t0\t1000\n")
	n.want("gauge/files up", "files 950 of 1000: files")
}

// TestGaugeFilesystemHangs: a filesystem that hangs is not called again until it answers, and the
// others are read.
func TestGaugeFilesystemHangs(t *testing.T) {
	n := newGaugeNode(t)
	n.mounts("8:1 / / ext4 rw", "8:2 / /data ext4 rw")
	n.look()
	answers, hang := n.g.statfs, make(chan struct{})
	asked := make(chan struct{}, 10)
	synctest.Test(t, func(t *testing.T) {
		hang = make(chan struct{})
		n.g.statfs = func(path string, key fsKey) (unix.Statfs_t, error) {
			if key.minor == 2 {
				asked <- struct{}{}
				<-hang
			}
			return answers(path, key)
		}
		is := func(reported []string, gauge string) bool { return slices.Contains(reported, gauge) }
		for i := range 3 {
			reported := n.look()
			if !is(reported, "inodes 48 of 64: 8:1 at /") || is(reported, "inodes 48 of 64: 8:2 at /data") {
				t.Errorf("look %d: %q", i, reported)
			}
			if down := "gauge/inodes down: filesystem at /data: no answer in time"; is(reported, down) != (i == 0) {
				t.Errorf("look %d: %q, want %q once", i, reported, down)
			}
		}
		if len(asked) != 1 {
			t.Errorf("asked %d times while it hangs, want once", len(asked))
		}
		close(hang)
		synctest.Wait()
		if reported := n.look(); !is(reported, "gauge/inodes up") || !is(reported, "inodes 48 of 64: 8:2 at /data") {
			t.Errorf("after it answers: %q", reported)
		}
	})
}

// TestGaugeOfAnUnpluggedDisk: a filesystem stays mounted when its disk is unplugged. Under another
// name, its gauges would neither continue nor end those before.
func TestGaugeOfAnUnpluggedDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newGaugeNode(t)
		n.write("/sys/block/sda/size", "1\n")
		n.write("/sys/dev/block/.keep", "")
		link := filepath.Join(n.root, "/sys/dev/block/8:1")
		if err := os.Symlink("../../block/sda", link); err != nil {
			t.Fatal(err)
		}
		n.mounts("8:1 / /data ext4 rw")
		for range 2 {
			if reported := n.look(); !slices.Contains(reported, "inodes 48 of 64: sda at /data") {
				t.Errorf("%q", reported)
			}
			if err := os.RemoveAll(link); err != nil {
				t.Fatal(err)
			}
			time.Sleep(gaugeEvery)
		}
		n.mounts()
		if reported := n.look(); !slices.Contains(reported, "inodes gone of sda at /data") {
			t.Errorf("unmounted: %q", reported)
		}
	})
}

// TestGaugeSeenByInit: an agent that has only the node's /proc reads filesystems through the paths
// of the node's init. An agent that may not trace init uses its own paths.
func TestGaugeSeenByInit(t *testing.T) {
	for _, seen := range []string{"/proc/1/root/data", "/data"} {
		n := newGaugeNode(t)
		n.mounts("8:2 / /data ext4 rw")
		answers := n.g.statfs
		n.g.statfs = func(path string, key fsKey) (unix.Statfs_t, error) {
			if path != filepath.Join(n.root, seen) {
				return unix.Statfs_t{}, unix.ENOENT
			}
			return answers(path, key)
		}
		if reported := n.look(); !slices.Contains(reported, "inodes 48 of 64: 8:2 at /data") {
			t.Errorf("seen at %s: %q", seen, reported)
		}
	}
}

// TestGaugeUnseen: a filesystem that no path leads to is omitted, and the source is down only if
// none is visible. In a container its own mounts lead to some.
func TestGaugeUnseen(t *testing.T) {
	n := newGaugeNode(t)
	n.mounts("8:1 / / ext4 rw", "8:2 / /data ext4 rw")
	n.g.own = func() ([]hostfs.Mount, error) {
		return []hostfs.Mount{{ID: 1, Major: 8, Minor: 1, Root: "/etc/hosts", Path: "/etc/hosts"}}, nil
	}
	answers := n.g.statfs
	way := func(path string, _ fsKey) error {
		if path == "/etc/hosts" {
			return nil
		}
		return hostfs.ErrOtherFilesystem
	}
	n.g.statfs = func(path string, key fsKey) (unix.Statfs_t, error) {
		if err := way(path, key); err != nil {
			return unix.Statfs_t{}, err
		}
		return answers(path, key)
	}
	has := func(reported []string, line string) bool { return slices.Contains(reported, line) }
	if reported := n.look(); !has(reported, "gauge/inodes up") || !has(reported, "inodes 48 of 64: 8:1 at /") || has(reported, "inodes 48 of 64: 8:2 at /data") {
		t.Errorf("%q", reported)
	}
	way = func(path string, _ fsKey) error {
		if strings.HasPrefix(path, n.root) && strings.HasSuffix(path, "/data") {
			return nil
		}
		return unix.EACCES
	}
	if reported := n.look(); !has(reported, "inodes gone of 8:1 at /") || !has(reported, "inodes 48 of 64: 8:2 at /data") || has(reported, "gauge/inodes up") {
		t.Errorf("the other one: %q", reported)
	}
	way = func(string, fsKey) error { return unix.ENOENT }
	if reported := n.look(); !has(reported, "gauge/inodes down: none of the node's filesystems is visible to the agent") || !has(reported, "inodes gone of 8:2 at /data") {
		t.Errorf("none: %q", reported)
	}
	way = func(_ string, key fsKey) error {
		if key.minor == 1 {
			return unix.EIO
		}
		return nil
	}
	if reported := n.look(); !has(reported, "gauge/inodes down: filesystem at /: input/output error") || !has(reported, "inodes 48 of 64: 8:2 at /data") {
		t.Errorf("one that fails: %q", reported)
	}
	n.mounts("0:43 / /b btrfs rw")
	n.g.own = func() ([]hostfs.Mount, error) {
		return []hostfs.Mount{{ID: 1, Minor: 43, Root: "/etc/hosts", Path: "/etc/hosts"}}, nil
	}
	way = func(path string, _ fsKey) error {
		if path == "/etc/hosts" {
			return nil
		}
		return hostfs.ErrOtherFilesystem
	}
	if reported := n.look(); !has(reported, "space 51200 of 81920: x0:43 at /b") {
		t.Errorf("without a device number: %q", reported)
	}
}

// TestGaugesAreBounded: what exceeds the bound is lost each time, not only once.
func TestGaugesAreBounded(t *testing.T) {
	n := newGaugeNode(t)
	lines := []string{"8:1 / /ro ext4 ro", "8:2 / /fuse fuseblk rw"}
	for minor := range maxGauged {
		lines = append(lines, fmt.Sprintf("9:%d / /m%d ext4 rw", minor, minor))
	}
	lost := func() (lost []string) {
		for _, line := range n.look() {
			if strings.Contains(line, " lost ") {
				lost = append(lost, line)
			}
		}
		return lost
	}
	n.mounts(lines...)
	if got := lost(); len(got) != 0 {
		t.Errorf("as many as are read: %q", got)
	}
	n.mounts(append(lines, "10:1 / /a ext4 rw", "10:2 / /b ext4 rw", "10:3 / /ro2 ext4 ro")...)
	for range 2 {
		if got, want := lost(), []string{"gauge/inodes lost 2: too-many", "gauge/space lost 2: too-many"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func BenchmarkGaugeLook(b *testing.B) {
	env := newEnvironment(Config{HostRoot: "/"}, slog.New(slog.DiscardHandler))
	defer env.close()
	g := newGaugeSource(env)
	events := 0
	for b.Loop() {
		g.look(func(*event.Event) { events++ })
	}
	b.ReportMetric(float64(events)/float64(b.N), "events/look")
}
