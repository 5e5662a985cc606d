package disklab

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/kernosis/kernosis/vmtest/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.CheckLeaks(m.Run)) }

func TestAttach(t *testing.T) {
	Need(t)
	image := filepath.Join(t.TempDir(), "image")
	blocks := make([]byte, 0, 3*4096)
	for _, b := range []byte("abc") {
		blocks = append(blocks, bytes.Repeat([]byte{b}, 4096)...)
	}
	if err := os.WriteFile(image, blocks, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		offset, size int64
		want         string
	}{"all": {0, 0, "abc"}, "from an offset on": {4096, 0, "bc"}, "a part": {4096, 4096, "b"}} {
		var device string
		t.Run(name, func(t *testing.T) {
			device = Attach(t, image, c.offset, c.size)
			content, err := os.ReadFile(device)
			if err != nil {
				t.Fatal(err)
			}
			var got []byte
			for i := 0; i < len(content); i += 4096 {
				got = append(got, content[i])
			}
			if string(got) != c.want {
				t.Errorf("blocks %q, want %q", got, c.want)
			}
		})
		// Another process may have reused the device.
		file, _ := os.ReadFile("/sys/block/" + filepath.Base(device) + "/loop/backing_file")
		if bytes.HasPrefix(file, []byte(image)) {
			t.Errorf("%s: %s is still attached", name, device)
		}
	}
}
