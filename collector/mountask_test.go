package collector

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/bounded"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/vmtest/disklab"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// The error occurred before the agent started, so nothing reports it again.
func TestMountErrorBeforeTheStart(t *testing.T) {
	const mount = healthyExt4 + ",errors=remount-ro"
	const (
		corrupt, aborted = "ext4_lookup", "ext4_journal_check_start"
		eio, erofs       = 2, 8 // EXT4_ERR_*
	)
	for name, tt := range map[string]struct {
		mount    string
		function string        // that detected the error
		code     int           // of the error
		after    time.Duration // time of the error, relative to the mount
		want     []string
	}{
		"of this mount":           {mount, corrupt, eio, time.Hour, []string{"mount.readonly ext4 sda at /data: error-policy"}},
		"of an ext3":              {strings.ReplaceAll(mount, "ext4", "ext3"), corrupt, eio, time.Hour, []string{"mount.readonly ext3 sda at /data: error-policy"}},
		"of the mount before":     {mount, corrupt, eio, -time.Hour, nil},
		"writes on":               {healthyExt4 + ",errors=continue", corrupt, eio, time.Hour, nil},
		"ends writing":            {healthyExt4 + ",errors=continue", aborted, eio, time.Hour, []string{"mount.readonly ext4 sda at /data: error-policy"}},
		"ended it, write refused": {healthyExt4 + ",errors=continue", "__ext4_new_inode", erofs, time.Hour, []string{"mount.readonly ext4 sda at /data: error-policy"}},
		"ended the mount before":  {healthyExt4 + ",errors=continue", aborted, eio, -time.Hour, nil},
		"mounted read-only":       {"30 1 8:0 / /data ro - ext4 /dev/sda rw,errors=remount-ro", aborted, eio, time.Hour, nil},
		"shown":                   {mount + ",emergency_ro", corrupt, eio, time.Hour, []string{"mount.readonly ext4 sda at /data: emergency-ro"}},
		"first mount read-only": {"29 1 8:0 /root / ro - ext4 /dev/sda rw\n30 1 8:0 /var /var rw - ext4 /dev/sda rw", aborted, eio, time.Hour,
			[]string{"mount.readonly ext4 sda at /: error-policy"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newMountNode(t)
				mounted := time.Now()
				n.mounts(tt.mount)
				n.write("/dev/sda", superblock(mounted))
				n.ext4Error(mounted.Add(tt.after))
				n.write("/sys/fs/ext4/sda/last_error_func", tt.function+"\n")
				n.write("/sys/fs/ext4/sda/last_error_errcode", fmt.Sprintln(tt.code))
				time.Sleep(2 * time.Hour)
				n.look()
				n.look()
				n.expect(tt.want...)
				if len(tt.want) == 0 {
					return
				}
				n.mounts()
				n.look()
				ended := strings.Replace(tt.want[0][:strings.LastIndexByte(tt.want[0], ' ')], "readonly", "writable", 1)
				n.expect(ended + " unmounted")
			})
		})
	}
}

// The clock of a booting machine may be ahead, as with local time: then the mount seems to be later
// than an error of this boot.
func TestMountErrorBeforeTheStartByAClockThatWasAhead(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		at   time.Time
		want []string
	}{
		{now, []string{"mount.readonly ext4 sda at /data: error-policy"}},
		{now.Add(-hostfs.BootTime() - time.Hour), nil},
	} {
		n := newMountNode(t)
		n.mounts(healthyExt4 + ",errors=remount-ro")
		n.write("/dev/sda", superblock(now.Add(time.Hour)))
		n.ext4Error(tt.at)
		n.look()
		n.look()
		n.expect(tt.want...)
	}
}

// A filesystem that does not answer at the first check is asked until it does.
func TestMountThatAnswersLate(t *testing.T) {
	n := newMountNode(t)
	n.mounts(healthyExt4 + ",errors=remount-ro")
	n.write("/dev/sda", superblock(time.Now().Add(-time.Hour)))
	n.ext4Error(time.Now())
	count := n.env.fs.Path("/sys/fs/ext4/sda/errors_count")
	if err := os.Remove(count); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(count, 0o600); err != nil { // opening it blocks until somebody writes
		t.Fatal(err)
	}
	n.look()
	n.expect()
	if began := time.Now(); n.look() != 0 || time.Since(began) > askWithin/2 {
		t.Errorf("the second look took %v: it waited again", time.Since(began))
	}
	n.expect()

	hangs := count + ".hangs"
	if err := os.Rename(count, hangs); err != nil {
		t.Fatal(err)
	}
	n.ext4Error(time.Now())
	answer, err := os.OpenFile(hangs, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	answer.Close()
	testenv.Until(t, "the answer", 10*time.Second, func() bool {
		n.look()
		return len(n.got) > 0
	})
	n.look()
	n.expect("mount.readonly ext4 sda at /data: error-policy")
}

// Filesystems that don't answer at the start keep no other from being asked. Until they answer, the
// source reports that it can't determine their state.
func TestMountsThatHangAtTheStart(t *testing.T) {
	n := newMountNode(t)
	var table, counts []string
	for i := range maxWaits + 1 {
		disk := fmt.Sprintf("sd%c", 'b'+i)
		n.write("/sys/devices/block/"+disk+"/dev", "")
		if err := os.Symlink("../../devices/block/"+disk, n.env.fs.Path(fmt.Sprintf("/sys/dev/block/8:%d", 16*(i+1)))); err != nil {
			t.Fatal(err)
		}
		table = append(table, fmt.Sprintf("%d 1 8:%d / /%s rw - ext4 /dev/%s rw", 31+i, 16*(i+1), disk, disk))
		count := n.env.fs.Path("/sys/fs/ext4/" + disk + "/errors_count")
		if err := errors.Join(os.MkdirAll(filepath.Dir(count), 0o755), unix.Mkfifo(count, 0o600)); err != nil {
			t.Fatal(err)
		}
		counts = append(counts, count)
	}
	n.mounts(append(table, healthyExt4+",errors=remount-ro")...)
	n.write("/dev/sda", superblock(time.Now().Add(-time.Hour)))
	n.ext4Error(time.Now())
	if again := n.source.read(n.emit); again == 0 || again > suspectSoon {
		t.Errorf("the next look is in %v, want at once", again)
	}
	n.expect("mount up false")
	if n.source.read(n.emit) != 0 {
		t.Error("another look is due although each filesystem was asked")
	}
	n.expect("mount.readonly ext4 sda at /data: error-policy", "mount up false")
	want := fmt.Sprintf("can't determine whether the filesystem at /sdb (and %d others) refuses writes: no answer in time", maxWaits)
	if err := n.source.unseen(); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}

	for _, count := range counts {
		answer, err := os.OpenFile(count, os.O_RDWR, 0)
		if err == nil {
			err = errors.Join(os.Rename(count, count+".hangs"), os.WriteFile(count, []byte("0\n"), 0o600), answer.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	testenv.Until(t, "the answers", 10*time.Second, func() bool {
		n.got = nil
		n.source.read(n.emit)
		return len(n.got) > 0 && n.got[0] == "mount up true"
	})
	// The engine takes no fault for over while the source was down.
	n.expect("mount up true", "mount.readonly ext4 sda at /data: error-policy")
}

// No more than maxHanging calls hang. A filesystem that is not asked counts as one that does not answer.
func TestMountHangingIsBounded(t *testing.T) {
	n := newMountNode(t)
	answer := make(chan struct{})
	for minor := range uint32(maxHanging) {
		calls := &bounded.Calls{}
		_ = bounded.Err(calls, time.Millisecond, func() error { <-answer; return nil })
		n.source.hanging[fsKey{9, minor}] = calls
	}
	n.mounts(healthyExt4)
	n.source.read(n.emit)
	n.expect("mount up false")
	close(answer)
	testenv.Until(t, "the answers", 10*time.Second, func() bool {
		n.source.read(n.emit)
		return len(n.got) > 0
	})
	n.expect("mount up true")
}

// The kernel reports only once that an ext4 has stopped, and up to v6.15 nothing shows it.
func TestMountStoppedAcrossARestart(t *testing.T) {
	for name, tt := range map[string]struct {
		stop  func(*disklab.Disk)
		stops bool
	}{
		"journal aborted": {(*disklab.Disk).AbortJournal, true},
		"shut down":       {(*disklab.Disk).ShutDown, true},
		"healthy":         {func(*disklab.Disk) {}, false},
	} {
		t.Run(name, func(t *testing.T) {
			disk := disklab.NewExt4(t, 8<<20, "-e", "continue")
			var st unix.Stat_t
			if err := unix.Stat(disk.Dir, &st); err != nil {
				t.Fatal(err)
			}
			major, minor := unix.Major(st.Dev), unix.Minor(st.Dev)
			// This machine, but for the mount table.
			n := &mountNode{t: t, env: newEnvironment(Config{HostRoot: t.TempDir()}, slog.New(slog.DiscardHandler))}
			t.Cleanup(func() { n.env.close() })
			for name, target := range map[string]string{"/sys": "/sys", "/dev": "/dev", "/data": disk.Dir, "/proc/fs": "/proc/fs"} {
				if err := errors.Join(os.MkdirAll(n.env.fs.Path("/proc"), 0o755), os.Symlink(target, n.env.fs.Path(name))); err != nil {
					t.Fatal(err)
				}
			}
			n.mounts(fmt.Sprintf("30 1 %d:%d / /data rw - ext4 %s rw", major, minor, disk.Device))
			var want []string
			if tt.stops {
				want = []string{"mount.readonly ext4 " + disk.Name + " at /data: error-policy"}
			}
			n.source = newMountSource(n.env)
			n.look()
			n.expect()
			tt.stop(disk)
			if tt.stops {
				n.source.Notify(major<<20|minor, hostfs.BootTime(), true)
				n.lookAt(time.Now().Add(2 * suspectFor))
				n.expect(want...)
			}
			n.source = newMountSource(n.env) // of an agent that starts
			n.look()
			n.look()
			n.expect(want...)
		})
	}
}

// While nothing reports the errors of a type, its filesystems are asked regularly, those mounted later
// too, and once more when something does: a fault before that is reported by nobody.
func TestMountErrorThatNobodyReports(t *testing.T) {
	const mount = healthyExt4 + ",errors=remount-ro"
	for name, tt := range map[string]struct {
		late    bool // it is mounted after the first look
		mount   string
		watched []string // from the error on
		want    []string
	}{
		"never watched":              {false, mount, nil, []string{"mount.readonly ext4 sda at /data: error-policy"}},
		"another is watched":         {false, mount, []string{"xfs"}, []string{"mount.readonly ext4 sda at /data: error-policy"}},
		"mounted later":              {true, mount, nil, []string{"mount.readonly ext4 sda at /data: error-policy"}},
		"watched after the error":    {false, mount, []string{"ext4"}, []string{"mount.readonly ext4 sda at /data: error-policy"}},
		"ext3, watched as ext4":      {true, strings.Replace(mount, "ext4", "ext3", 1), []string{"ext4"}, nil},
		"mounted later, and watched": {true, mount, []string{"ext4"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newMountNode(t)
				n.source.Watched(nil)
				n.write("/dev/sda", superblock(time.Now()))
				n.mounts()
				if !tt.late {
					n.mounts(tt.mount)
				}
				n.look()
				n.source.Watched(tt.watched)
				n.ext4Error(time.Now())
				n.mounts(tt.mount)
				time.Sleep(mountEvery)
				n.look()
				n.expect(tt.want...)
			})
		})
	}
}

// A filesystem that can't be asked, and whose errors nobody reports, is not seen.
func TestMountNobodySees(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMountNode(t)
		n.mounts(healthyXFS)
		n.source.read(n.emit)
		n.expect("mount up true")
		for range 2 {
			n.source.Watched([]string{"ext4"})
			time.Sleep(mountEvery)
			n.source.read(n.emit)
			n.expect("mount up false")
			n.source.Watched([]string{"ext4", "xfs"})
			time.Sleep(mountEvery)
			n.source.read(n.emit)
			n.expect("mount up true")
		}
	})
}

// Without its hook the shutdown of an XFS is found by asking.
func TestMountShutDownWithoutAHook(t *testing.T) {
	disk := disklab.NewXFS(t)
	_, _, expect := xfsSource(t, disk)
	now := time.Now()
	expect(now)
	disk.ShutDown()
	expect(now.Add(mountEvery), "mount.readonly shutdown")
}

// Filesystems mounted later have their errors reported, so they are not asked.
func TestMountIsAskedAtTheStartOnly(t *testing.T) {
	n := newMountNode(t)
	n.mounts()
	n.look()
	n.mounts(healthyExt4 + ",errors=remount-ro")
	n.write("/dev/sda", superblock(time.Now()))
	n.ext4Error(time.Now())
	n.look()
	n.expect()
}

// The kernel reports the shutdown of an XFS once, and mountinfo does not show it.
func TestMountShutDownBeforeTheStart(t *testing.T) {
	healthy, dead := disklab.NewXFS(t), disklab.NewXFS(t)
	dead.ShutDown()
	env := newEnvironment(Config{HostRoot: "/"}, slog.New(slog.DiscardHandler))
	t.Cleanup(func() { env.close() })
	table, err := env.fs.MountTable()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	newMountSource(env).look(table, time.Now(), func(ev *event.Event) {
		got[ev.Device.Name] = string(ev.Kind) + " " + ev.Mount.Path + " " + ev.Mount.Reason
	})
	if want := "mount.readonly " + dead.Dir + " shutdown"; got[dead.Name] != want || got[healthy.Name] != "" {
		t.Errorf("%q, want %q, and nothing of %s", got, want, healthy.Name)
	}
}
