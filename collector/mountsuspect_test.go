package collector

import (
	"encoding/binary"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/vmtest/disklab"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// An error of a filesystem does not count for the one that is mounted there next, which may be the
// same one, repaired.
func TestMountAnewIsNoSuspect(t *testing.T) {
	for _, mount := range []string{healthyXFS, healthyExt4 + ",errors=remount-ro"} {
		synctest.Test(t, func(t *testing.T) {
			n := newMountNode(t)
			n.mounts(mount)
			n.look()
			n.source.Notify(8<<20, hostfs.BootTime(), false)
			n.mounts()
			n.look()
			n.got = nil // an xfs may have been reported
			n.mounts(mount)
			n.look()
			time.Sleep(2 * suspectFor)
			n.look()
			n.expect()
		})
	}
}

// An ext4 whose journal is aborted refuses writes, even with errors=continue, and up to v6.15
// nothing shows it.
func TestMountErrorThatEndsWriting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMountNode(t)
		n.mounts(healthyExt4 + ",errors=continue")
		n.look()
		n.source.Notify(8<<20, hostfs.BootTime(), false)
		n.source.Notify(8<<20, hostfs.BootTime(), true)
		for again := n.look(); again > 0; again = n.look() {
			time.Sleep(again)
		}
		n.expect("mount.readonly ext4 sda at /data: error-policy")
	})
}

// superblock returns the beginning of an ext4 that was mounted at a time.
func superblock(mounted time.Time) string {
	device := make([]byte, 2048)
	binary.LittleEndian.PutUint32(device[1024+0x2c:], uint32(mounted.Unix()))
	binary.LittleEndian.PutUint16(device[1024+0x38:], 0xef53)
	return string(device)
}

// An error that is reported late may belong to the previous mount: on 5.10 under load.
func TestMountLateErrorOfTheMountBefore(t *testing.T) {
	for name, tt := range map[string]struct {
		mounted time.Duration // after the error
		want    []string
	}{
		"of the one before": {3 * time.Second, nil},
		"of this one":       {-3 * time.Second, []string{"mount.readonly ext4 sda at /data: error-policy"}},
		// The clock was corrected after the mount: at boot it may show local time.
		"of this one, by a clock that was ahead": {time.Hour, []string{"mount.readonly ext4 sda at /data: error-policy"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newMountNode(t)
				n.mounts(healthyExt4 + ",errors=remount-ro")
				n.write("/dev/sda", superblock(time.Now().Add(tt.mounted)))
				n.look()
				at := hostfs.BootTime()
				time.Sleep(5 * time.Second)
				at -= 5*time.Second + 2*suspectFor // what the bubble sleeps in all
				n.source.Notify(8<<20, at, false)
				time.Sleep(2 * suspectFor)
				n.look()
				n.look()
				n.expect(tt.want...)
			})
		})
	}
}

// A filesystem with an invisible fault may be unmounted, repaired and mounted again between two
// checks.
func TestMountRenewedUnseen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMountNode(t)
		n.mounts(healthyExt4 + ",errors=remount-ro")
		n.write("/dev/sda", superblock(time.Now()))
		n.look()
		n.source.Notify(8<<20, hostfs.BootTime(), false)
		time.Sleep(2 * suspectFor)
		n.look()
		n.expect("mount.readonly ext4 sda at /data: error-policy")
		n.look()
		n.expect()
		n.write("/dev/sda", superblock(time.Now()))
		n.look()
		n.expect("mount.writable ext4 sda at /data: remounted")
	})
}

// A disk that does not answer delays the detection on other disks only once.
func TestMountOnADiskThatHangs(t *testing.T) {
	n := newMountNode(t)
	const mount = healthyExt4 + ",errors=remount-ro"
	n.mounts(mount)
	n.write("/dev/sda", superblock(time.Now()))
	n.look()
	n.source.Notify(8<<20, hostfs.BootTime(), false)
	n.lookAt(time.Now().Add(2 * suspectFor))
	n.expect("mount.readonly ext4 sda at /data: error-policy")

	disklab.HangFiles(t, n.env.fs.Path("/dev/sda"))
	n.mounts(mount, "31 1 8:16 / /b rw - ext4 /dev/sdb rw,emergency_ro")
	looked := make(chan time.Duration)
	go func() {
		for range 2 {
			began := time.Now()
			n.look()
			looked <- time.Since(began)
		}
	}()
	for _, most := range []time.Duration{2 * askWithin, askWithin / 2} {
		select {
		case took := <-looked:
			if took > testenv.Within(most) {
				t.Errorf("a look took %v, want at most %v", took, most)
			}
		case <-time.After(testenv.Within(2 * askWithin)):
			t.Fatal("the look hangs")
		}
	}
	n.expect("mount.readonly ext4 8:16 at /b: emergency-ro")
}

// xfsSource returns a source with this machine's mounts, the device number of an XFS, and a
// function that makes a check and expects events of that XFS.
func xfsSource(t *testing.T, disk *disklab.Disk) (source *mountSource, dev uint32, expect func(when time.Time, want ...string)) {
	t.Helper()
	env := newEnvironment(Config{HostRoot: "/"}, slog.New(slog.DiscardHandler))
	t.Cleanup(func() { env.close() })
	source = newMountSource(env)
	var st unix.Stat_t
	if err := unix.Stat(disk.Device, &st); err != nil {
		t.Fatal(err)
	}
	return source, unix.Major(st.Rdev)<<20 | unix.Minor(st.Rdev), func(when time.Time, want ...string) {
		t.Helper()
		table, err := env.fs.MountTable()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		source.look(table, when, func(ev *event.Event) {
			if ev.Device.Name == disk.Name {
				got = append(got, string(ev.Kind)+" "+ev.Mount.Reason)
			}
		})
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// While the agent was stopped, an XFS may have shut down and been repaired.
func TestMountOldShutDown(t *testing.T) {
	disk := disklab.NewXFS(t)
	source, dev, expect := xfsSource(t, disk)
	now := time.Now()
	expect(now)
	source.Notify(dev, hostfs.BootTime()-time.Hour, true)
	expect(now)
	expect(now.Add(2 * suspectFor))
}

// An XFS that has shut down may be repaired and mounted again between two checks.
func TestMountShutDownAndRenewedUnseen(t *testing.T) {
	disk := disklab.NewXFS(t)
	source, dev, expect := xfsSource(t, disk)
	now := time.Now()
	disk.ShutDown()
	expect(now, "mount.readonly shutdown")
	now = now.Add(time.Minute)
	expect(now)
	disk.Renew()
	expect(now, "mount.writable remounted")
	// The new mount may shut down too.
	disk.ShutDown()
	source.Notify(dev, hostfs.BootTime(), true)
	expect(now.Add(time.Second), "mount.readonly shutdown")
}

// An error of a filesystem that was unmounted and mounted again is none of the mount before.
func TestMountErrorAfterANewMount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMountNode(t)
		for _, table := range [][]string{{healthyExt4}, nil, {healthyExt4}} {
			n.mounts(table...)
			n.look()
		}
		n.source.Notify(8<<20, hostfs.BootTime(), true)
		time.Sleep(2 * suspectFor)
		n.look()
		n.expect("mount.readonly ext4 sda at /data: error-policy")
	})
}

// A filesystem may also be mounted again within the second of the error, if its unmount was
// detected.
func TestMountLateErrorOfTheSameSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMountNode(t)
		n.mounts(healthyExt4 + ",errors=remount-ro")
		n.look()
		at := hostfs.BootTime()
		time.Sleep(time.Millisecond)
		n.mounts()
		n.look()
		n.mounts(healthyExt4 + ",errors=remount-ro")
		n.write("/dev/sda", superblock(time.Now()))
		n.look()
		n.source.Notify(8<<20, at, false)
		time.Sleep(2 * suspectFor)
		n.look()
		n.expect()
		n.source.Notify(8<<20, hostfs.BootTime(), false)
		time.Sleep(2 * suspectFor)
		n.look()
		n.expect("mount.readonly ext4 sda at /data: error-policy")
	})
}
