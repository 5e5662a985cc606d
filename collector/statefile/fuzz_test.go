package statefile

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// A file is an object that is read as a whole, or an error, and then its content is kept. No
// beginning of what was saved is taken for the whole.
func FuzzLoad(f *testing.F) {
	f.Add([]byte(`{"version":2,"name":"a","later":{"version":9}}`), "a", uint16(3))
	f.Add([]byte(`{"version":3}`), "\x00\xff\u2028", uint16(12))
	f.Add([]byte(`null`), "", uint16(0))
	f.Add([]byte("[]"), "{}", uint16(0))
	f.Add(make([]byte, 100), "", uint16(0))
	file := File{Path: filepath.Join(f.TempDir(), "state.json")}
	load := func(t *testing.T, content []byte) (v value, err error) {
		if err := os.WriteFile(file.Path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		found, err := file.Load(2, &v)
		if newer := (&NewerError{}); !found || errors.As(err, &newer) && newer.Form <= 2 {
			t.Errorf("%q: %v, %v", content, found, err)
		}
		if err != nil {
			if kept, readErr := os.ReadFile(file.Path + ".unread"); !bytes.Equal(kept, content) {
				t.Errorf("%q is kept as %q, %v, %v", content, kept, err, readErr)
			}
		}
		return v, err
	}
	f.Fuzz(func(t *testing.T, content []byte, name string, cut uint16) {
		if _, err := load(t, content); err == nil && bytes.TrimLeft(content, " \t\r\n")[0] != '{' {
			t.Errorf("%q is no object", content)
		}
		want := value{Version: 2, Name: string(bytes.ToValidUTF8([]byte(name), []byte("?")))}
		if err := file.Save(want); err != nil {
			t.Fatal(err)
		}
		saved, err := os.ReadFile(file.Path)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := load(t, saved); err != nil || got != want {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
		begin := saved[:int(cut)%len(saved)]
		if got, err := load(t, begin); err == nil {
			t.Errorf("%q of %q reads as %+v", begin, saved, got)
		}
	})
}
