package hostfs

import (
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kernosis/kernosis/collector/event"
)

func TestSplitKernelDev(t *testing.T) {
	if major, minor := SplitKernelDev(259<<20 | 0xfffff); major != 259 || minor != 0xfffff {
		t.Errorf("%d:%d", major, minor)
	}
}

// reuse gives the number of loop3 to another device, as after its removal.
func reuse(t *testing.T, f FS, name string, seq string) {
	t.Helper()
	dir := "/sys/devices/virtual/block/" + name
	if err := os.MkdirAll(f.Path(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	if seq != "" {
		write(t, f, dir+"/diskseq", seq)
	}
	if err := os.Remove(f.Path("/sys/dev/block/7:3")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../../devices/virtual/block/"+name, f.Path("/sys/dev/block/7:3")); err != nil {
		t.Fatal(err)
	}
}

func TestDevicesReuse(t *testing.T) {
	for name, seq := range map[string]string{"with diskseq": "99\n", "without": ""} {
		t.Run(name, func(t *testing.T) {
			f := fixture(t, "6.12-systemd-v2")
			if seq == "" {
				if err := os.Remove(f.Path("/sys/devices/virtual/block/loop3/diskseq")); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Test(t, func(t *testing.T) {
				d := NewDevices(f)
				if got := d.Device(7, 3).Name; got != "loop3" {
					t.Fatalf("name = %q", got)
				}
				if err := os.RemoveAll(f.Path("/sys/devices/virtual/block/loop3")); err != nil {
					t.Fatal(err)
				}
				reuse(t, f, "other", seq)
				if got := d.Device(7, 3).Name; got != "loop3" {
					t.Errorf("within the second: %q, want the remembered name", got)
				}
				time.Sleep(deviceFresh)
				if got := d.Device(7, 3).Name; got != "other" {
					t.Errorf("after the second: %q, want the new device", got)
				}
			})
		})
	}
}

// A filesystem stays mounted when its disk is unplugged, and its device keeps its name.
func TestDevicesUnplugged(t *testing.T) {
	f := fixture(t, "6.12-systemd-v2")
	synctest.Test(t, func(t *testing.T) {
		d := NewDevices(f)
		before := d.Device(259, 2)
		if before.Name != "nvme0n1p2" || before.Parent != "nvme0n1" {
			t.Fatalf("%+v", before)
		}
		link := f.Path("/sys/dev/block/259:2")
		if err := errors.Join(os.Remove(link), os.RemoveAll(f.Path("/sys/devices/pci/nvme0n1"))); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			time.Sleep(deviceFresh)
			if got := d.Device(259, 2); got.Name != before.Name || got.Parent != before.Parent {
				t.Errorf("unplugged: %+v, want %+v", got, before)
			}
		}
		if err := os.Symlink("../../devices/virtual/block/loop3", link); err != nil {
			t.Fatal(err)
		}
		time.Sleep(deviceFresh)
		if got := d.Device(259, 2); got.Name != "loop3" || got.Parent != "" {
			t.Errorf("the number's new owner: %+v", got)
		}
	})
}

// The same name with another sequence number is another disk.
func TestDevicesSequenceChecked(t *testing.T) {
	f := fixture(t, "6.12-systemd-v2")
	synctest.Test(t, func(t *testing.T) {
		d := NewDevices(f)
		d.Device(7, 3)
		entry, _ := d.cache.Get(devKey(7, 3))
		time.Sleep(deviceFresh)
		d.Device(7, 3)
		if again, _ := d.cache.Get(devKey(7, 3)); again != entry {
			t.Error("read anew although it is the same disk")
		}
		write(t, f, "/sys/devices/virtual/block/loop3/diskseq", "77\n")
		time.Sleep(deviceFresh)
		d.Device(7, 3)
		if again, _ := d.cache.Get(devKey(7, 3)); again == entry || again.seq != 77 {
			t.Error("not read anew although it is another disk")
		}
	})
}

func TestDevicesMounts(t *testing.T) {
	f := fixture(t, "6.12-systemd-v2")
	d := NewDevices(f)
	if got := d.Device(252, 1).Mounts; got != nil {
		t.Errorf("mounts without a table: %v", got)
	}
	table, err := f.MountTable()
	if err != nil {
		t.Fatal(err)
	}
	d.SetMounts(table)
	want := event.Mount{Path: "/srv/data set", FSType: "ext4"}
	if got := d.Device(252, 1).Mounts; len(got) != 1 || got[0] != want {
		t.Errorf("mounts = %v, want %v", got, want)
	}
	before := BootTime()
	d.SetMounts(newMountTable(nil, f.sourceDevice))
	if got := d.Device(252, 1).Mounts; len(got) != 0 {
		t.Errorf("mounts after unmount: %v", got)
	}
	// Events that arrive late.
	if got := d.DeviceAt(252, 1, before).Mounts; len(got) != 1 || got[0] != want {
		t.Errorf("mounts at a time before the unmount: %v, want %v", got, want)
	}
	if got := d.DeviceAt(252, 1, BootTime()).Mounts; len(got) != 0 {
		t.Errorf("mounts at a time after the unmount: %v", got)
	}
	d.SetMounts(table)
	if got := d.DeviceAt(252, 1, BootTime()).Mounts; len(got) != 1 || got[0] != want {
		t.Errorf("mounts, mounted again: %v, want %v", got, want)
	}
}

// Mounts of a device that is gone are dropped after a while.
func TestDevicesForgetMounts(t *testing.T) {
	f := fixture(t, "6.12-systemd-v2")
	d := NewDevices(f)
	table, err := f.MountTable()
	if err != nil {
		t.Fatal(err)
	}
	none := newMountTable(nil, f.sourceDevice)
	d.SetMounts(table)
	before := BootTime()
	d.SetMounts(none)
	if len(d.gone) == 0 || len(d.DeviceAt(252, 1, before).Mounts) == 0 {
		t.Fatal("nothing is known of what went")
	}
	for key, g := range d.gone {
		d.gone[key] = goneMounts{g.mounts, g.seen - goneFor}
	}
	d.SetMounts(none)
	if len(d.gone) != 0 {
		t.Errorf("still known: %v", d.gone)
	}
}

func TestDeviceAllocs(t *testing.T) {
	d := NewDevices(fixture(t, "6.12-systemd-v2"))
	d.Device(259, 2)
	if n := testing.AllocsPerRun(100, func() { d.Device(259, 2) }); n != 0 {
		t.Errorf("%v allocations a remembered device", n)
	}
}

func TestLoopBackingFileName(t *testing.T) {
	for _, name := range []string{"sda", "", "loop/../../../etc"} {
		if _, err := (FS{}).LoopBackingFile(name); !errors.Is(err, ErrPath) {
			t.Errorf("%q: error = %v, want ErrPath", name, err)
		}
	}
}
