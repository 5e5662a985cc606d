package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// The same sources in another folder, built later by another user with another environment, give
// the same bytes.
func TestBuildsAreReproducible(t *testing.T) {
	first := image(t)
	source := filepath.Join(t.TempDir(), "elsewhere")
	copySources(t, source)
	for name, value := range map[string]string{
		"GOFLAGS": "-buildvcs=true -ldflags=-v", "GOAMD64": "v3", "GOARM64": "v9.0", "GOEXPERIMENT": "nosuchthing",
		"CGO_ENABLED": "1", "TZ": "Asia/Kathmandu", "LC_ALL": "tr_TR.UTF-8",
	} {
		t.Setenv(name, value)
	}
	second := filepath.Join(source, "dist")
	if err := makeTarget(source, "image", "GOROOT_FINAL=/elsewhere"); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(first)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	want := []string{"kernosis-image.tar", "kernosis-linux-amd64", "kernosis-linux-arm64", "kernosis.cdx.json"}
	if !slices.Equal(names, want) {
		t.Errorf("dist has %v, want %v", names, want)
	}
	for _, name := range names {
		if !bytes.Equal(read(t, first, name), read(t, second, name)) {
			t.Errorf("%s is not the same", name)
		}
	}
}

// copySources copies the module as in a release archive: without history or build results.
func copySources(t *testing.T, to string) {
	t.Helper()
	err := filepath.WalkDir(moduleRoot, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(moduleRoot, path)
		if err != nil {
			return err
		}
		switch target := filepath.Join(to, rel); {
		case slices.Contains([]string{".git", "bin", "dist"}, rel) && e.IsDir():
			return filepath.SkipDir
		case e.IsDir():
			return os.MkdirAll(target, 0o755)
		case rel == ".git" || !e.Type().IsRegular(): // .git is a file in a work tree
			return nil
		default:
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			return os.WriteFile(target, content, 0o644)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The image depends on all properties of a release.
func TestWhatTheArchiveDependsOn(t *testing.T) {
	p, err := readProgram(filepath.Join(image(t), programFile("amd64")))
	if err != nil {
		t.Fatal(err)
	}
	p.content = p.content[:1<<20] // a smaller program compresses faster
	base := &builder{
		release:  release{name: "kernosis/kernosis", version: testVersion, revision: testRevision, created: created},
		programs: []*program{p},
	}
	digests := map[string]string{}
	for name, change := range map[string]func(*release){
		"nothing":  func(*release) {},
		"name":     func(r *release) { r.name = "tools/kernosis" },
		"version":  func(r *release) { r.version = "v0.0.0-image.2" },
		"revision": func(r *release) { r.revision = "" },
		"time":     func(r *release) { r.created = r.created.AddDate(0, 0, 1) },
	} {
		b := *base
		change(&b.release)
		ref, err := reference(b.name, b.version)
		if err != nil {
			t.Fatal(err)
		}
		var archive bytes.Buffer
		d, err := b.write(&archive, ref)
		if err != nil {
			t.Fatal(err)
		}
		for other, digest := range digests {
			// The name is only in the archive: a registry assigns another one.
			if same := digest == d.String(); same != (name+other == "namenothing" || name+other == "nothingname") {
				t.Errorf("%s and %s: the same image: %v", name, other, same)
			}
		}
		digests[name] = d.String()
	}
}
