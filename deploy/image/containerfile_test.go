package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// instruction is a line of a Containerfile: its name, such as FROM, and its arguments.
type instruction struct{ name, text string }

func containerfile(t *testing.T) []instruction {
	t.Helper()
	text := regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllString(string(read(t, "Containerfile")), "")
	var all []instruction
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
		if name, rest, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			all = append(all, instruction{name, strings.Join(strings.Fields(rest), " ")})
		}
	}
	return all
}

// The Containerfile describes the same image as make image creates.
func TestContainerfile(t *testing.T) {
	all := containerfile(t)
	second := -1
	for i, in := range all {
		if in.name == "FROM" {
			second = i
		}
	}
	stages := []string{all[0].text, all[second].text}
	version := regexp.MustCompile(`(?m)^go (\S+)$`).FindStringSubmatch(string(read(t, moduleRoot, "go.mod")))
	if want := []string{"--platform=$BUILDPLATFORM golang:" + version[1] + " AS build", "scratch"}; !slices.Equal(stages, want) {
		t.Errorf("it is made from %q, want %q", stages, want)
	}
	if !slices.ContainsFunc(all[:second], func(in instruction) bool {
		return in.name == "RUN" && strings.HasPrefix(in.text, `make image-root ROOT=/image PLATFORMS="linux/${TARGETARCH:-$(go env GOARCH)}" VERSION="$VERSION" REVISION="$REVISION" SOURCE_DATE_EPOCH="$SOURCE_DATE_EPOCH"`)
	}) {
		t.Error("it does not run make image-root")
	}

	got := ocispec.ImageConfig{Labels: map[string]string{}}
	values := strings.NewReplacer("$VERSION", testVersion, "$REVISION", testRevision)
	pair := regexp.MustCompile(`(\S+?)="([^"]*)"`)
	for _, in := range all[second+1:] {
		switch in.name {
		case "ARG":
		case "COPY":
			if in.text != "--from=build /image/ /" {
				t.Errorf("it copies %s", in.text)
			}
		case "USER":
			got.User = in.text
		case "WORKDIR":
			got.WorkingDir = in.text
		case "ENTRYPOINT":
			if err := json.Unmarshal([]byte(in.text), &got.Entrypoint); err != nil {
				t.Error(err)
			}
		case "ENV":
			for _, m := range pair.FindAllStringSubmatch(in.text, -1) {
				got.Env = append(got.Env, m[1]+"="+m[2])
			}
		case "LABEL":
			for _, m := range pair.FindAllStringSubmatch(values.Replace(in.text), -1) {
				got.Labels[m[1]] = m[2]
			}
		default:
			t.Errorf("%s %s: make image does not have it", in.name, in.text)
		}
	}
	want := readLayout(t).image(t, "amd64").config.Config
	want.Labels = maps.Clone(want.Labels)
	delete(want.Labels, ocispec.AnnotationCreated) // builders set the image's time and have no label for it
	if !reflect.DeepEqual(got, want) {
		t.Errorf("it says %+v\nmake image says %+v", got, want)
	}
}

// make image-root, from which the Containerfile copies all files, writes the same files as the
// image contains.
func TestRoot(t *testing.T) {
	root := filepath.Join(imageRoot(t), "root")
	want := maps.Clone(readLayout(t).image(t, runtime.GOARCH).entries)
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		w, ok := want[name]
		delete(want, name)
		if !ok {
			t.Errorf("%s is not in the image", name)
			return nil
		}
		switch w.header.Typeflag {
		case tar.TypeSymlink:
			if link, err := os.Readlink(path); err != nil || link != w.header.Linkname {
				t.Errorf("%s leads to %q, %v; want %q", name, link, err, w.header.Linkname)
			}
			return nil
		case tar.TypeReg:
			if !bytes.Equal(read(t, path), w.content) {
				t.Errorf("%s is another file", name)
			}
		}
		if info.Mode() != w.header.FileInfo().Mode() || !info.ModTime().Equal(created) {
			t.Errorf("%s: %s of %s, want %s of %s", name, info.Mode(), info.ModTime(), w.header.FileInfo().Mode(), created)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range want {
		t.Errorf("no %s", name)
	}
}
