package hostfs

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
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
