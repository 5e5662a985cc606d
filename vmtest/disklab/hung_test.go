package disklab

import (
	"os"
	"path/filepath"
	"testing"
)

func TestHangFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, held := range map[string]string{"a file": path, "its folder": dir} {
		f := HangFiles(t, held)
		read := make(chan string)
		go func() {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Error(err)
			}
			read <- string(text)
		}()
		f.Wait()
		select {
		case <-read:
			t.Errorf("%s: it was read", name)
		default:
		}
		f.Release()
		if text := <-read; text != "text" {
			t.Errorf("%s: %q", name, text)
		}
	}
}
