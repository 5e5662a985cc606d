package hostfs

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
)

func TestMountTableSourceDevice(t *testing.T) {
	f := fixture(t, "6.12-systemd-v2")
	file, err := f.openMountinfo()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	mounts, err := ParseMounts(file)
	if err != nil {
		t.Fatal(err)
	}
	table := newMountTable(mounts, func(m *Mount) (uint64, bool) {
		return devKey(259, 3), m.FSType == "btrfs"
	})
	want := []event.Mount{{Path: "/home", FSType: "btrfs"}, {Path: `/mnt/backslash\tab\thash#`, FSType: "btrfs"}}
	if diff := cmp.Diff(want, table.At(259, 3)); diff != "" {
		t.Errorf("btrfs by its device (-want +got):\n%s", diff)
	}
	if got := table.At(0, 44); got != nil {
		t.Errorf("anonymous device has mounts: %v", got)
	}
}

// The source of a mount is used only for filesystems that number their own subvolumes, and only if
// it is a block device.
func TestSourceDevice(t *testing.T) {
	f := fixture(t, "6.12-systemd-v2")
	if err := os.MkdirAll(f.Path("/dev"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, f, "/dev/plain", "")
	if err := unix.Mknod(f.Path("/dev/nvme1n1"), unix.S_IFBLK|0o600, int(unix.Mkdev(259, 3))); err != nil {
		t.Skipf("no permission to make a device node: %v", err)
	}
	byPath := f.Path("/dev/disk/by-path")
	if err := errors.Join(os.MkdirAll(byPath, 0o755), os.Symlink("../../nvme1n1", byPath+"/pci-0000:00:1f.2-ata-1")); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		fsType, source string
		want           bool
	}{
		{"btrfs", "/dev/nvme1n1", true},
		{"bcachefs", "/dev/nvme1n1:/dev/other", true},
		{"fuse.liar", "/dev/nvme1n1", false},
		{"btrfs", "/dev/disk/by-path/pci-0000:00:1f.2-ata-1", true},
		{"btrfs", "/dev/plain", false},
		{"btrfs", "/dev/gone", false},
		{"btrfs", "nvme1n1", false},
	}
	for _, tt := range tests {
		dev, ok := f.sourceDevice(&Mount{FSType: tt.fsType, Source: tt.source})
		if ok != tt.want || ok && dev != devKey(259, 3) {
			t.Errorf("%s on %s: %#x %t", tt.fsType, tt.source, dev, ok)
		}
	}
}

func TestParseMountsLongLine(t *testing.T) {
	short := "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"
	long := "2 1 0:9 / /layers rw - overlay none rw,lowerdir=" + strings.Repeat("/l:", 40_000) + "\n"
	got, err := ParseMounts(strings.NewReader(short + long + short))
	if err != nil || len(got) != 2 {
		t.Errorf("%d mounts, error %v; want the two short ones", len(got), err)
	}
	if b := []byte(short); &dropLongLines(b)[0] != &b[0] {
		t.Error("copied although no line is long")
	}
}

// A part of a table is not a table: the mounts that it lacks would look unmounted.
func TestParseMountsTooLarge(t *testing.T) {
	short := "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"
	// A cut in the options leaves a valid line.
	long := "2 1 0:9 / /layers rw - overlay none rw,lowerdir=" + strings.Repeat("/l:", 300) + "\n"
	for name, text := range map[string]string{
		"bytes":  strings.Repeat(long, largeFile/len(long)+1),
		"mounts": strings.Repeat(short, maxMounts+1),
	} {
		if got, err := ParseMounts(strings.NewReader(text)); err == nil {
			t.Errorf("too many %s: %d mounts and no error", name, len(got))
		}
	}
	if got, err := ParseMounts(strings.NewReader(strings.Repeat(short, maxMounts))); err != nil || len(got) != maxMounts {
		t.Errorf("as many mounts as allowed: %d, error %v", len(got), err)
	}
}

// If hidepid=2 hides init, the mount table is an error. Only the cgroup hierarchies are then read from
// this process's table, because all processes usually see them at the same place.
func TestMountTableOfHiddenInit(t *testing.T) {
	f := New(t.TempDir())
	if err := os.MkdirAll(f.Path("/proc/self"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, f, "/proc/self/mountinfo", "1 0 8:1 / /own rw - ext4 /dev/sda1 rw\n2 1 0:9 / /sys/fs/cgroup rw - cgroup2 none rw\n")
	if table, err := f.MountTable(); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "hidepid") {
		t.Errorf("%d mounts, %v", len(table.Mounts()), err)
	}
	if l, err := f.CgroupLayout(); err != nil || l.Unified != "/sys/fs/cgroup" {
		t.Errorf("layout %+v, %v", l, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := NewMountWatcher(f).Run(ctx, cancel); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("watch: %v", err)
	}
}

func TestMountTableNil(t *testing.T) {
	var table *MountTable
	if table.At(8, 1) != nil || table.Mounts() != nil {
		t.Error("a nil table has mounts")
	}
}

func FuzzParseMounts(f *testing.F) {
	for _, name := range fixtures {
		text, err := os.ReadFile("testdata/" + name + "/proc/1/mountinfo")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		mounts, err := ParseMounts(bytes.NewReader(text))
		if err != nil {
			return
		}
		cgroupLayout(mounts)
		table := newMountTable(mounts, func(*Mount) (uint64, bool) { return 0, false })
		for _, m := range mounts {
			list := table.At(m.Major, m.Minor)
			if len(list) > maxDeviceMounts {
				t.Errorf("%d mounts of one device", len(list))
			}
			for _, s := range list {
				if display.Safe(s.Path, 1<<20) != s.Path {
					t.Errorf("path %q is not safe", s.Path)
				}
			}
		}
	})
}
