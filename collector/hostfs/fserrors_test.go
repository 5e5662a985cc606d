package hostfs

import (
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
	if down, err := f.XFSShutDown(major, minor); down || err == nil {
		t.Errorf("without a path: %t, %v", down, err)
	}
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
