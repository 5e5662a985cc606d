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

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
)

func ext4Mount(path string, set ...func(*hostfs.Mount)) hostfs.Mount {
	m := hostfs.Mount{Major: 8, Minor: 2, Root: "/", Path: path, FSType: "ext4", Source: "/dev/sda2", ErrorsPolicy: "remount-ro"}
	for _, f := range set {
		f(&m)
	}
	return m
}

func mountRO(m *hostfs.Mount)     { m.MountReadOnly = true }
func superRO(m *hostfs.Mount)     { m.SuperReadOnly = true }
func emergencyRO(m *hostfs.Mount) { m.EmergencyRO = true }
func shutDown(m *hostfs.Mount)    { m.Shutdown = true }

func of(fsType string) func(*hostfs.Mount) { return func(m *hostfs.Mount) { m.FSType = fsType } }
func anonymous(m *hostfs.Mount)            { m.Major, m.Minor = 0, 45 }
func device(m *hostfs.Mount)               { m.DeviceMajor, m.DeviceMinor = m.Major, m.Minor }
func source(s string) func(*hostfs.Mount)  { return func(m *hostfs.Mount) { m.Source = s } }
func rootAt(dir string) func(*hostfs.Mount) {
	return func(m *hostfs.Mount) { m.Root = dir }
}

func TestDiffMounts(t *testing.T) {
	type table = []hostfs.Mount
	volume := ext4Mount("/data")
	pod := ext4Mount("/pod")
	reader := ext4Mount("/reader", mountRO) // a pod that mounts it read-only
	subvolume := func(path, root string, set ...func(*hostfs.Mount)) hostfs.Mount {
		return ext4Mount(path, append(set, of("btrfs"), anonymous, rootAt(root))...)
	}
	tests := []struct {
		name     string
		old, now table
		want     string
	}{
		{"nothing", table{volume}, table{volume}, ""},
		{"error on 6.11 and older", table{volume, pod, reader},
			table{ext4Mount("/data", superRO), ext4Mount("/pod", superRO), ext4Mount("/reader", mountRO, superRO)}, "/data superblock-ro"},
		{"error of another kind than ext4", table{ext4Mount("/usb", of("somefs"))}, table{ext4Mount("/usb", of("somefs"), superRO)}, "/usb superblock-ro"},
		{"error on 6.15 and newer", table{volume}, table{ext4Mount("/data", emergencyRO)}, "/data emergency-ro"},
		{"shutdown", table{volume}, table{ext4Mount("/data", shutDown, emergencyRO)}, "/data shutdown"},
		{"reported once", table{ext4Mount("/data", emergencyRO)}, table{ext4Mount("/data", emergencyRO)}, ""},
		{"administrator", table{volume}, table{ext4Mount("/data", superRO, mountRO)}, "/data superblock-ro, deliberate"},
		{"administrator, with bind mounts", table{volume, pod}, table{ext4Mount("/data", superRO, mountRO), ext4Mount("/pod", superRO)}, "/data superblock-ro, deliberate"},
		{"administrator, by a bind mount", table{volume, pod}, table{ext4Mount("/data", superRO), ext4Mount("/pod", superRO, mountRO)}, "/data superblock-ro, deliberate"},
		{"only one mount", table{volume, pod}, table{volume, ext4Mount("/pod", mountRO)}, ""},
		{"nobody writes", table{ext4Mount("/data", mountRO)}, table{ext4Mount("/data", mountRO, superRO)}, ""},
		{"administrator's ends", table{ext4Mount("/data", mountRO, superRO)}, table{volume}, "/data -remounted"},
		{"remounted", table{ext4Mount("/data", superRO)}, table{volume}, "/data -remounted"},
		{"mounted anew", table{ext4Mount("/data", emergencyRO)}, table{volume}, "/data -remounted"},
		{"unmounted", table{ext4Mount("/data", emergencyRO)}, nil, "/data -unmounted"},
		{"first mount gone", table{ext4Mount("/data", emergencyRO), ext4Mount("/pod", emergencyRO)}, table{ext4Mount("/pod", emergencyRO)}, ""},
		{"at the start", nil, table{ext4Mount("/data", superRO), ext4Mount("/reader", mountRO, superRO)}, "/data superblock-ro"},
		{"at the start, administrator's", nil, table{ext4Mount("/data", mountRO, superRO), ext4Mount("/pod", superRO)}, ""},
		{"at the start, emergency", nil, table{ext4Mount("/data", emergencyRO)}, "/data emergency-ro"},
		{"read-only by nature", nil, table{ext4Mount("/cd", of("iso9660"), superRO), ext4Mount("/snap", of("squashfs"), superRO)}, ""},
		{"without a disk", table{ext4Mount("/", of("overlay"), anonymous)}, table{ext4Mount("/", of("overlay"), anonymous, superRO)}, ""},
		{"btrfs", table{ext4Mount("/", of("btrfs"), anonymous)}, table{ext4Mount("/", of("btrfs"), anonymous, superRO)}, "/ superblock-ro"},
		{"btrfs beside a read-only root", table{subvolume("/", "/@", mountRO), subvolume("/var", "/@var")},
			table{subvolume("/", "/@", mountRO, superRO), subvolume("/var", "/@var", superRO)}, "/ superblock-ro"},
		{"btrfs beside a read-only root, at the start", nil,
			table{subvolume("/", "/@", mountRO, superRO), subvolume("/var", "/@var", superRO)}, "/ superblock-ro"},
		{"btrfs, administrator's, at the start", nil,
			table{subvolume("/", "/@", mountRO, superRO), subvolume("/pod", "/@/vol", superRO)}, ""},
		{"first mount of two sources gone", table{ext4Mount("/data", emergencyRO, source("/dev/mapper/a"), device), ext4Mount("/pod", emergencyRO, device)},
			table{ext4Mount("/pod", emergencyRO, device)}, ""},
		{"number used again", table{volume}, table{ext4Mount("/snap", of("squashfs"), source("/dev/loop0"), superRO)}, "/data -unmounted"},
		{"two filesystems", table{volume, ext4Mount("/b", func(m *hostfs.Mount) { m.Minor = 3 })},
			table{ext4Mount("/data", emergencyRO)}, "/data emergency-ro, /b -unmounted"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, c := range diff(tt.old, tt.now) {
				reason := c.reason
				if !c.faulty {
					reason = "-" + reason
				}
				if c.deliberate {
					reason += ", deliberate"
				}
				if (fsKey{c.mount.Major, c.mount.Minor}) != c.key {
					t.Errorf("key %v of mount %+v", c.key, c.mount)
				}
				got = append(got, c.mount.Path+" "+reason)
			}
			if s := strings.Join(got, ", "); s != tt.want {
				t.Errorf("got %q, want %q", s, tt.want)
			}
		})
	}
}

// mountNode is a node whose mount table the test writes.
type mountNode struct {
	t      *testing.T
	env    *environment
	source *mountSource
	got    []string
}

func newMountNode(t *testing.T) *mountNode {
	t.Helper()
	fs := hostfs.New(t.TempDir())
	env := &environment{log: slog.New(slog.DiscardHandler), fs: fs, clock: hostfs.NewClock(), devices: hostfs.NewDevices(fs)}
	n := &mountNode{t: t, env: env, source: newMountSource(env)}
	n.source.Watched([]string{"ext4", "xfs"})
	n.write("/sys/devices/block/sda/dev", "8:0")
	n.write("/sys/dev/block/.keep", "")
	if err := os.Symlink("../../devices/block/sda", fs.Path("/sys/dev/block/8:0")); err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *mountNode) write(path, content string) {
	n.t.Helper()
	path = n.env.fs.Path(path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		n.t.Fatal(err)
	}
}

func (n *mountNode) mounts(lines ...string) {
	n.t.Helper()
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l + "\n")
	}
	n.write("/proc/1/mountinfo", b.String())
}

// ext4Error makes the ext4 on sda have a recorded error of a time.
func (n *mountNode) ext4Error(at time.Time) {
	n.t.Helper()
	n.write("/sys/fs/ext4/sda/errors_count", "1\n")
	n.write("/sys/fs/ext4/sda/last_error_time", fmt.Sprintln(at.Unix()))
}

func (n *mountNode) emit(ev *event.Event) {
	if ev.Kind == event.Source {
		n.got = append(n.got, fmt.Sprintf("%s up %v", ev.SourceUp.Stem, ev.SourceUp.Up))
		return
	}
	if ev.Lost != nil {
		n.got = append(n.got, fmt.Sprintf("%s lost %d: %s", ev.Lost.Stem, ev.Lost.Count, ev.Lost.Reason))
		return
	}
	if ev.Device == nil || ev.Mount == nil || ev.CPU != event.NoCPU || ev.Time.IsZero() {
		n.t.Errorf("incomplete event %+v", ev)
		return
	}
	n.got = append(n.got, fmt.Sprintf("%s %s %s at %s: %s", ev.Kind, ev.Mount.FSType, ev.Device.Name, ev.Mount.Path, ev.Mount.Reason))
}

func (n *mountNode) look() (again time.Duration) {
	n.t.Helper()
	return n.lookAt(time.Now())
}

func (n *mountNode) lookAt(now time.Time) (again time.Duration) {
	n.t.Helper()
	table, err := n.env.fs.MountTable()
	if err != nil {
		n.t.Fatal(err)
	}
	return n.source.look(table, now, n.emit)
}

// expect checks the events since the last call.
func (n *mountNode) expect(want ...string) {
	n.t.Helper()
	if !slices.Equal(n.got, want) {
		n.t.Errorf("got %q, want %q", n.got, want)
	}
	n.got = nil
}

// moment returns the current time. In a synctest bubble only its wall clock is the bubble's.
const (
	healthyExt4 = "30 1 8:0 / /data rw - ext4 /dev/sda rw"
	brokenExt4  = "30 1 8:0 / /data rw - ext4 /dev/sda ro"
	healthyXFS  = "30 1 8:0 / /data rw - xfs /dev/sda rw"
)

func TestMountsAreReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMountNode(t)
		n.mounts(healthyExt4)
		n.look()
		n.expect()
		for range 2 {
			n.mounts("31 1 8:0 /vol /var/lib/kubelet/pods/x rw - ext4 /dev/sda ro", brokenExt4)
			time.Sleep(n.look())
		}
		n.look()
		n.expect("mount.readonly ext4 sda at /data: superblock-ro")
		for range 2 {
			n.mounts(healthyExt4)
			n.look()
		}
		n.expect("mount.writable ext4 sda at /data: remounted")
		n.mounts(brokenExt4)
		time.Sleep(n.look())
		n.look()
		n.mounts()
		n.look()
		n.expect("mount.readonly ext4 sda at /data: superblock-ro", "mount.writable ext4 sda at /data: unmounted")
	})
}

// A fault that lasts is reported again after the mount table could not be read: otherwise the
// engine would consider it over.
func TestMountSourceAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const (
			shown    = healthyExt4 + ",emergency_ro"
			reported = "mount.readonly ext4 sda at /data: emergency-ro"
		)
		n := newMountNode(t)
		away := func() {
			t.Helper()
			if err := os.Remove(n.env.fs.Path("/proc/1/mountinfo")); err != nil {
				t.Fatal(err)
			}
			n.source.read(n.emit)
		}
		n.mounts(shown)
		n.source.read(n.emit)
		n.expect(reported, "mount up true")
		away()
		n.expect("mount up false")
		n.mounts(shown)
		n.source.read(n.emit)
		n.expect("mount up true", reported)
		n.source.read(n.emit)
		n.expect()
		away()
		n.mounts()
		n.source.read(n.emit)
		n.expect("mount up false", "mount.writable ext4 sda at /data: unmounted", "mount up true")
	})
}

// A btrfs has a number of its own. It is named after its device, whatever it was mounted by, and
// remains the same one under another name of the device.
func TestMountBtrfs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMountNode(t)
		n.write("/sys/devices/block/sdb/dev", "8:16")
		if err := os.Symlink("../../devices/block/sdb", n.env.fs.Path("/sys/dev/block/8:16")); err != nil {
			t.Fatal(err)
		}
		for name, dev := range map[string]string{"a!data": "8:0", "b!data": "8:16", "sda": "8:0"} {
			n.write("/sys/class/block/"+name+"/dev", dev)
		}
		const alias, other = "30 1 0:45 / /a rw - btrfs /dev/a/data ", "31 1 0:46 / /b rw - btrfs /dev/b/data "
		n.mounts(alias+"rw", other+"rw")
		n.look()
		n.mounts(alias+"ro", other+"ro")
		time.Sleep(n.look())
		n.look()
		n.expect("mount.readonly btrfs sda at /a: superblock-ro", "mount.readonly btrfs sdb at /b: superblock-ro")
		n.mounts("32 1 0:45 / /c rw - btrfs /dev/sda ro", other+"ro")
		n.look()
		n.expect()
		n.mounts("32 1 0:45 / /c rw - btrfs /dev/sda ro", "33 1 0:46 / /c rw - btrfs /dev/sda rw")
		n.look()
		n.expect("mount.writable btrfs sdb at /b: unmounted")
	})
}

// A request gets the faults that last, once the table can be read.
func TestMountReportLasting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMountNode(t)
		n.mounts(healthyExt4 + ",emergency_ro")
		n.source.read(n.emit)
		n.expect("mount.readonly ext4 sda at /data: emergency-ro", "mount up true")
		asked := &mountNode{t: t}
		n.source.reportLasting(asked.emit)
		select {
		case <-n.source.wake:
		default:
			t.Error("it does not look soon")
		}
		n.source.read(n.emit)
		n.source.read(n.emit)
		n.expect()
		asked.expect("mount.readonly ext4 sda at /data: emergency-ro")

		n.source.reportLasting(asked.emit)
		n.mounts()
		n.source.read(n.emit)
		n.expect("mount.writable ext4 sda at /data: unmounted")
		asked.expect()
	})
}

// For a moment only the first half of an administrator's remount is visible.
func TestMountHalfRemounted(t *testing.T) {
	const (
		pod      = "31 1 8:0 /vol /pods/x rw - ext4 /dev/sda "
		done     = "30 1 8:0 / /data ro - ext4 /dev/sda ro"
		reported = "mount.readonly ext4 sda at /data: superblock-ro"
		second   = time.Second
	)
	type step struct {
		after  time.Duration
		mounts []string
		errs   bool // an error of the filesystem is reported
	}
	half := []string{brokenExt4, pod + "ro"}
	before := step{mounts: []string{healthyExt4, pod + "rw"}}
	for name, tt := range map[string]struct {
		steps []step
		want  []string
	}{
		"in time":               {[]step{before, {mounts: half}, {after: 4 * second, mounts: half}, {after: second / 2, mounts: []string{done, pod + "ro"}}, {after: 9 * second, mounts: []string{done, pod + "ro"}}}, nil},
		"given up":              {[]step{before, {mounts: half}, {after: second, mounts: before.mounts}, {after: 9 * second, mounts: before.mounts}}, nil},
		"unmounted":             {[]step{before, {mounts: half}, {after: second}, {after: 9 * second}}, nil},
		"none, it lasts":        {[]step{before, {mounts: half}, {after: 5 * second, mounts: half}, {after: 9 * second, mounts: half}}, []string{reported}},
		"none, an error is why": {[]step{before, {mounts: half, errs: true}, {after: second, mounts: half}}, []string{reported}},
		"an error is seen late": {[]step{before, {mounts: half}, {after: second / 100, mounts: half, errs: true}}, []string{reported}},
		"again and again": {[]step{before, {mounts: half}, {after: 3 * second, mounts: before.mounts},
			{mounts: half}, {after: 3 * second, mounts: []string{done, pod + "ro"}}}, nil},
		"while the agent starts": {[]step{{mounts: half}, {after: second, mounts: []string{done, pod + "ro"}}}, nil},
		"before it started":      {[]step{{mounts: half}, {after: 5 * second, mounts: half}}, []string{reported}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newMountNode(t)
				for _, s := range tt.steps {
					time.Sleep(s.after)
					n.mounts(s.mounts...)
					if s.errs {
						n.source.Notify(8<<20, hostfs.BootTime(), false)
					}
					n.look()
				}
				n.expect(tt.want...)
			})
		})
	}
}

// A mount that turns read-only together with its filesystem looks like an administrator's remount, but
// the kernel records errors.
func TestMountErrorBesideARemount(t *testing.T) {
	const pod = "31 1 8:0 /vol /pods/x "
	for name, tt := range map[string]struct {
		options string
		at      time.Duration // of the error, since the look before; 0: none
		aborted bool
		want    []string
	}{
		"error":                   {"errors=remount-ro", 2 * time.Second, false, []string{"mount.readonly ext4 sda at /data: superblock-ro"}},
		"aborted journal":         {"errors=continue", 2 * time.Second, true, []string{"mount.readonly ext4 sda at /data: superblock-ro"}},
		"error that ends none":    {"errors=continue", 2 * time.Second, false, nil},
		"error before":            {"errors=remount-ro", -2 * time.Second, false, nil},
		"administrator's remount": {"errors=remount-ro", 0, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newMountNode(t)
				n.mounts("30 1 8:0 / /data rw - ext4 /dev/sda rw,"+tt.options, pod+"rw - ext4 /dev/sda rw,"+tt.options)
				n.look()
				if tt.at != 0 {
					n.ext4Error(time.Now().Add(tt.at))
				}
				if tt.aborted {
					n.write("/sys/fs/ext4/sda/last_error_func", hostfs.Ext4AbortedIn+"\n")
				}
				time.Sleep(3 * time.Second)
				n.mounts("30 1 8:0 / /data rw - ext4 /dev/sda ro,"+tt.options, pod+"ro - ext4 /dev/sda ro,"+tt.options)
				n.look()
				time.Sleep(mountEvery)
				n.look()
				n.expect(tt.want...)
			})
		})
	}
}

// ext4 before 6.15, with backports from 6.1, does not show that it refuses writes.
func TestMountErrorPolicy(t *testing.T) {
	const dev = 8 << 20
	for name, tt := range map[string]struct {
		mount, options string
		want           []string
	}{
		"policy in mountinfo": {healthyExt4 + ",errors=remount-ro", "", []string{"mount.readonly ext4 sda at /data: error-policy"}},
		"policy by default":   {healthyExt4, "rw\nerrors=remount-ro\n", []string{"mount.readonly ext4 sda at /data: error-policy"}},
		"ext3":                {strings.ReplaceAll(healthyExt4, "ext4", "ext3"), "rw\nerrors=remount-ro\n", []string{"mount.readonly ext3 sda at /data: error-policy"}},
		"writes on":           {healthyExt4, "rw\nerrors=continue\n", nil},
		"not reported":        {healthyExt4, "", nil},
		"overridden":          {healthyExt4 + ",errors=continue", "errors=remount-ro\n", nil},
		"mounted read-only":   {"30 1 8:0 / /data ro - ext4 /dev/sda ro,errors=remount-ro", "", nil},
		"another filesystem":  {healthyXFS, "", []string{"mount.readonly xfs sda at /data: shutdown"}},
		"first mount read-only": {"29 1 8:0 /root / ro - ext4 /dev/sda rw,errors=remount-ro\n30 1 8:0 /var /var rw - ext4 /dev/sda rw,errors=remount-ro", "",
			[]string{"mount.readonly ext4 sda at /: error-policy"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newMountNode(t)
				n.mounts(tt.mount)
				if tt.options != "" {
					n.write("/proc/fs/ext4/sda/options", tt.options)
				}
				n.look()
				n.source.Notify(dev, hostfs.BootTime(), false)
				n.source.Notify(dev, hostfs.BootTime(), false)
				looks := 0
				for again := n.look(); again > 0; again = n.look() {
					time.Sleep(again)
					looks++
				}
				if looks != 2 {
					t.Errorf("%d looks after the first, want 2", looks)
				}
				n.expect(tt.want...)
				n.mounts()
				n.look()
				if len(tt.want) > 0 {
					n.expect(strings.Replace(tt.want[0][:strings.LastIndexByte(tt.want[0], ' ')], "readonly", "writable", 1) + " unmounted")
				}
			})
		})
	}
}

// A fault that becomes visible in time is reported by what is visible.
func TestMountSuspectShows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMountNode(t)
		n.mounts(healthyExt4 + ",errors=remount-ro")
		n.look()
		n.source.Notify(8<<20, hostfs.BootTime(), false)
		time.Sleep(n.look())
		n.expect()
		n.mounts(healthyExt4 + ",errors=remount-ro,emergency_ro")
		time.Sleep(n.look())
		if again := n.look(); again != 0 {
			t.Errorf("another look in %s", again)
		}
		n.expect("mount.readonly ext4 sda at /data: emergency-ro")
	})
}

// What exceeds a bound is counted, and a fault that the table shows is reported once there is room.
func TestMountSuspectsAreBounded(t *testing.T) {
	n := newMountNode(t)
	for minor := range uint32(10 * maxSuspects) {
		n.source.Notify(8<<20|minor, hostfs.BootTime(), false)
	}
	if len(n.source.suspects) != maxSuspects {
		t.Errorf("%d suspects", len(n.source.suspects))
	}
	n.mounts()
	n.look()
	n.expect(fmt.Sprintf("mount lost %d: too-many", 9*maxSuspects))

	var lines []string
	for minor := range 2 * maxRefusing {
		lines = append(lines, fmt.Sprintf("%d 1 9:%d / /m%d rw - ext4 /dev/md%d rw,emergency_ro", minor+30, minor, minor, minor))
	}
	n.mounts(lines...)
	n.look()
	n.look()
	if len(n.got) != maxRefusing+1 || n.got[maxRefusing] != fmt.Sprintf("mount lost %d: too-many", maxRefusing) {
		t.Errorf("%d events, the last one %q", len(n.got), n.got[max(len(n.got)-1, 0):])
	}
	n.mounts(lines[maxRefusing:]...)
	n.look()
	n.got = nil
	n.look()
	n.look()
	if len(n.got) != maxRefusing || !strings.HasPrefix(n.got[0], "mount.readonly ") {
		t.Errorf("%d events: %q", len(n.got), n.got[:min(len(n.got), 2)])
	}
}

// A shutdown of an XFS for which there is no room counts once, although it is checked several times.
func TestMountShutDownWithoutRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMountNode(t)
		lines := []string{healthyXFS}
		for minor := range maxRefusing {
			lines = append(lines, fmt.Sprintf("%d 1 9:%d / /m%d rw - ext4 /dev/md%d rw,emergency_ro", minor+31, minor, minor, minor))
		}
		n.mounts(lines...)
		n.look()
		n.got = nil
		n.source.Notify(8<<20, hostfs.BootTime(), true)
		for again := n.look(); again > 0; again = n.look() {
			time.Sleep(again)
		}
		n.expect("mount lost 1: too-many")
	})
}

func BenchmarkDiffMounts(b *testing.B) {
	var table []hostfs.Mount
	for i := range 2000 { // a node with 200 pods
		table = append(table, ext4Mount(fmt.Sprint("/m", i), func(m *hostfs.Mount) { m.Minor = uint32(i % 50) }))
	}
	b.ReportAllocs()
	for b.Loop() {
		diff(table, table)
	}
}
