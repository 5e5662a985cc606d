package hostfs

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/vmtest/disklab"
)

// Only the filesystem itself can report that it has not shut down.
func TestXFSShutDownAsksTheRightOne(t *testing.T) {
	f := New(t.TempDir())
	var st unix.Stat_t
	if err := unix.Stat(f.Path("/"), &st); err != nil {
		t.Fatal(err)
	}
	major, minor := unix.Major(st.Dev), unix.Minor(st.Dev)
	if down, err := f.XFSShutDown(major, minor, "/"); down || err != nil {
		t.Errorf("%v, %v", down, err)
	}
	for path, want := range map[string]string{"/": "another filesystem is at", "/none": "no such file"} {
		if down, err := f.XFSShutDown(major, minor+1, path); down || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v, want %s", path, down, err, want)
		}
	}
}

func TestExt4ShutDown(t *testing.T) {
	for name, tt := range map[string]struct {
		do   func(*disklab.Disk)
		want bool
	}{
		"healthy":   {func(*disklab.Disk) {}, false},
		"shut down": {(*disklab.Disk).ShutDown, true},
		"mounted read-only": {func(d *disklab.Disk) {
			if err := d.SetReadOnly(true); err != nil {
				t.Fatal(err)
			}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			disk := disklab.NewExt4(t, 8<<20)
			var st unix.Stat_t
			if err := unix.Stat(disk.Dir, &st); err != nil {
				t.Fatal(err)
			}
			tt.do(disk)
			major, minor := unix.Major(st.Dev), unix.Minor(st.Dev)
			if got, err := New("").Ext4ShutDown(major, minor, disk.Dir); got != tt.want || err != nil {
				t.Errorf("%v, %v, want %v", got, err, tt.want)
			}
			if got, err := New("").Ext4ShutDown(major, minor, "/proc"); got || err == nil {
				t.Errorf("another filesystem: %v, %v", got, err)
			}
		})
	}
}

// A device has ext4, and a time that is not before 1970, or there is an error.
func FuzzExt4MountedAt(f *testing.F) {
	device := make([]byte, 2048)
	copy(device[ext4Super+ext4MTime:], "\x80\x3f\xfd\x6a")
	copy(device[ext4Super+ext4Magic:], "\x53\xef")
	f.Add(device)
	f.Add(device[:2047])
	f.Add(append(bytes.Clone(device), 1))
	f.Add(make([]byte, 4096))
	fs := New(f.TempDir())
	if err := os.Mkdir(fs.Path("/dev"), 0o755); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, device []byte) {
		write(t, fs, "/dev/sda1", string(device))
		at, err := fs.Ext4MountedAt("sda1")
		if valid := len(device) >= 2048 && device[1024+0x38] == 0x53 && device[1024+0x39] == 0xef; (err == nil) != valid {
			t.Fatalf("%v, %v", at, err)
		}
		if err == nil && (at.Unix() < 0 || at.Unix()>>32 != int64(device[1024+0x274]) || byte(at.Unix()) != device[1024+0x2c]) {
			t.Errorf("%v", at)
		}
	})
}
