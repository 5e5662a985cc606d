package statefile

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

type value struct {
	Version int    `json:"version,omitempty"`
	Name    string `json:"name"`
}

func TestLoad(t *testing.T) {
	for name, c := range map[string]struct {
		content string
		want    value
		newer   int // the unknown format
		broken  bool
	}{
		"as it is saved":      {content: `{"version":2,"name":"a"}`, want: value{2, "a"}},
		"of an older form":    {content: `{"version":1,"name":"a"}`, want: value{1, "a"}},
		"of the first form":   {content: `{"name":"a"}`, want: value{0, "a"}},
		"with more":           {content: `{"later":{"version":9},"version":2,"name":"a"}`, want: value{2, "a"}},
		"of a newer form":     {content: `{"version":3,"name":["b"]}`, newer: 3},
		"torn":                {content: `{"version":2,"na`, broken: true},
		"empty":               {content: ``, broken: true},
		"of another type":     {content: `{"version":2,"name":7}`, broken: true},
		"without any version": {content: `"a"`, broken: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := File{Path: filepath.Join(t.TempDir(), "state.json")}
			if err := os.WriteFile(f.Path, []byte(c.content), 0o600); err != nil {
				t.Fatal(err)
			}
			var got value
			found, err := f.Load(2, &got)
			newer := &NewerError{}
			if errors.As(err, &newer) != (c.newer > 0) || newer.Form != c.newer || !found || (err != nil) != (c.broken || c.newer > 0) {
				t.Fatal(found, err)
			}
			if err == nil {
				if got != c.want {
					t.Errorf("%+v", got)
				}
				return
			}
			if kept := read(t, f.Path+".unread"); kept != c.content {
				t.Errorf("kept is %q", kept)
			}
			if found, err := f.Load(2, &got); found || err != nil {
				t.Error(found, err)
			}
		})
	}
}

// A file that can't be read is reported as an error and not set aside: it may be readable next
// time.
func TestLoadFails(t *testing.T) {
	f := File{Path: filepath.Join(t.TempDir(), "folder")}
	if err := os.Mkdir(f.Path, 0o700); err != nil {
		t.Fatal(err)
	}
	if found, err := f.Load(1, &value{}); found || err == nil {
		t.Error(found, err)
	}
	if _, err := os.Stat(f.Path); err != nil {
		t.Error(err)
	}
}

func TestSave(t *testing.T) {
	f := File{Path: filepath.Join(t.TempDir(), "state.json"), Max: 12}
	if found, err := f.Load(1, &value{}); found || err != nil {
		t.Fatal(found, err)
	}
	if err := f.Save(value{Name: "a"}); err != nil {
		t.Fatal(err)
	}
	if err := f.Save(value{Name: "too long"}); err == nil {
		t.Error("a value beyond the bound is saved")
	}
	var got value
	if found, err := f.Load(1, &got); !found || err != nil || got.Name != "a" {
		t.Error(found, got, err)
	}
}
