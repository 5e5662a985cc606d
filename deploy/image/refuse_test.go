package main

import (
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWhatIsRefused(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "out")
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no version":           {[]string{"-archive", out, self}, "-version is required"},
		"no program":           {[]string{"-version", "v1", "-archive", out}, "no program"},
		"nothing to write":     {[]string{"-version", "v1", self}, "nothing to write"},
		"root of two":          {[]string{"-version", "v1", "-root", out, self, self}, "one platform"},
		"time in words":        {[]string{"-version", "v1", "-created", "today", "-archive", out, self}, "whole seconds"},
		"time before 1970":     {[]string{"-version", "v1", "-created", "-1", "-archive", out, self}, "whole seconds"},
		"another program":      {[]string{"-version", "v1", "-archive", out, self}, "not github.com/kernosis/kernosis/cmd/kernosis"},
		"program not there":    {[]string{"-version", "v1", "-archive", out, out}, "no such file"},
		"no program of Go":     {[]string{"-version", "v1", "-archive", out, "main.go"}, "main.go"},
		"flag that is not one": {[]string{"-tag", "v1"}, "-tag"},
	} {
		err := run(t.Context(), c.args, io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if _, err := os.Stat(out); !os.IsNotExist(err) {
		t.Errorf("something was written: %v", err)
	}
}

// A program that another machine would not build identically, or that would not start in the image,
// is rejected.
func TestProgramsOfOtherBuildsAreRefused(t *testing.T) {
	good := read(t, image(t), programFile("amd64"))
	replaced := func(from, to string) []byte { return bytes.ReplaceAll(good, []byte(from), []byte(to)) }
	for name, c := range map[string]struct {
		program []byte
		want    string
	}{
		"with paths":         {replaced("-trimpath=true", "-trimpath=fals"), `-trimpath="fals", want "true"`},
		"with cgo":           {replaced("CGO_ENABLED=0", "CGO_ENABLED=1"), `CGO_ENABLED="1"`},
		"other tags":         {replaced("-tags=grpcnotrace", "-tags=grpcdotrace"), `-tags="grpcdotrace"`},
		"newer processors":   {replaced("GOAMD64=v1", "GOAMD64=v3"), `GOAMD64="v3"`},
		"another system":     {replaced("GOOS=linux", "GOOS=linus"), `GOOS="linus"`},
		"another processor":  {replaced("GOARCH=amd64", "GOARCH=amd46"), "amd64 or arm64"},
		"a setting more":     {replaced("-compiler=gc", "-gcflagss=-N"), `-gcflagss="-N", want ""`},
		"linked dynamically": {interpreted(t, good), "dynamically"},
	} {
		path := filepath.Join(t.TempDir(), "kernosis")
		if err := os.WriteFile(path, c.program, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readProgram(path); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// interpreted returns a program whose header requests a loader.
func interpreted(t *testing.T, program []byte) []byte {
	t.Helper()
	program = bytes.Clone(program)
	const size = 56 // of a program header of a 64-bit program
	for at := binary.LittleEndian.Uint64(program[32:]); ; at += size {
		if elf.ProgType(binary.LittleEndian.Uint32(program[at:])) == elf.PT_NOTE {
			binary.LittleEndian.PutUint32(program[at:], uint32(elf.PT_INTERP))
			return program
		}
	}
}

func TestProgramsOfOtherSourcesAreRefused(t *testing.T) {
	dir := image(t)
	program := filepath.Join(dir, programFile("amd64"))
	if err := new(builder).read(t.Context(), moduleRoot, []string{program, program}); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("the same platform twice: %v", err)
	}

	info, err := buildinfo.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOTOOLCHAIN", info.GoVersion) // as make sets it

	// One of its BPF objects differs from that in the sources.
	object := read(t, moduleRoot, "bpf", "oomkill_bpfel.o")
	content := read(t, program)
	at := bytes.Index(content, object)
	if at < 0 {
		t.Fatal("the object is not in the program")
	}
	content[at+len(object)/2] ^= 1
	other := filepath.Join(t.TempDir(), "kernosis")
	if err := os.WriteFile(other, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := new(builder).read(t.Context(), moduleRoot, []string{other}); err == nil || !strings.Contains(err.Error(), "oomkill_bpfel.o is not in") {
		t.Errorf("another BPF object: %v", err)
	}

	// A module has another version than in go.mod, of the same length, which keeps the file valid.
	content = bytes.ReplaceAll(read(t, program), []byte("dep\tgithub.com/spf13/cobra\tv1.10.2"), []byte("dep\tgithub.com/spf13/cobra\tv1.10.9"))
	if err := os.WriteFile(other, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := new(builder).read(t.Context(), moduleRoot, []string{other}); err == nil || !strings.Contains(err.Error(), `cobra "v1.10.9"`) {
		t.Errorf("another version of a module: %v", err)
	}
}

func TestReference(t *testing.T) {
	for _, c := range []struct{ name, version, want, err string }{
		{"registry.test:5000/tools/kernosis", "v1.2.3", "registry.test:5000/tools/kernosis:1.2.3", ""},
		{"localhost/kernosis", "3e81a00-dirty", "localhost/kernosis:3e81a00-dirty", ""},
		{"Kernosis", "v1", "", "lowercase"},
		{"kernosis/kernosis:v1", "v1", "", "the tag is the version"},
		{"kernosis/kernosis", "v1.2.3+build", "", "can't be a tag"},
		{"", "v1", "", "-name"},
	} {
		ref, err := reference(c.name, c.version)
		switch {
		case c.err != "":
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q %q: %v, want %q", c.name, c.version, err, c.err)
			}
		case err != nil || ref.String() != c.want:
			t.Errorf("%q %q: %v, %v", c.name, c.version, ref, err)
		}
	}
}
