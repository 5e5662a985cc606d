package machine

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/u-root/u-root/pkg/cpio"

	"github.com/kernosis/kernosis/vmtest/kernel"
)

// unpack reads an archive: content by path, and symbolic links as "→ target".
func unpack(t *testing.T, raw []byte) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := cpio.ForEachRecord(cpio.Newc.Reader(bytes.NewReader(raw)), func(rec cpio.Record) error {
		content := ""
		if rec.ReaderAt != nil {
			b, err := io.ReadAll(io.NewSectionReader(rec, 0, int64(rec.FileSize)))
			if err != nil {
				return err
			}
			content = string(b)
		}
		if rec.Mode&cpio.S_IFMT == cpio.S_IFLNK {
			content = "→ " + content
		}
		if has(files, rec.Name) {
			t.Errorf("%s is packed twice", rec.Name)
		}
		if dir := filepath.Dir(rec.Name); dir != "." && !has(files, dir) {
			t.Errorf("%s comes before its folder", rec.Name)
		}
		files[rec.Name] = content
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func has(files map[string]string, name string) bool {
	_, ok := files[name]
	return ok
}

func write(t *testing.T, path, content string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// testSpec returns a machine whose kernel has no modules.
func testSpec(t *testing.T) (Spec, plan) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, index := range []string{"modules.dep", "modules.dep.bin"} {
		write(t, filepath.Join(dir, "modules", index), "")
	}
	s := Spec{
		Kernel: kernel.Image{Release: "1.2.3-test", ModulesDir: filepath.Join(dir, "modules"), Config: write(t, filepath.Join(dir, "config"), "CONFIG_A=y\n")},
		Init:   self,
	}
	return s, plan{Args: []string{self, "-test.v"}, Dir: filepath.Join(dir, "pkg"), Cgroup: CgroupV2}
}

func TestInitramfsHoldsWhatTheProgramNeeds(t *testing.T) {
	s, p := testSpec(t)
	data := write(t, filepath.Join(p.Dir, "testdata", "deep", "a.txt"), "seven")
	if err := os.Symlink("a.txt", filepath.Join(p.Dir, "testdata", "deep", "link")); err != nil {
		t.Fatal(err)
	}
	s.Config.Programs = []string{"sh"}
	s.Config.Files = []string{write(t, filepath.Join(t.TempDir(), "extra"), "more")}
	var raw bytes.Buffer
	if err := s.initramfs(&raw, p); err != nil {
		t.Fatal(err)
	}
	files := unpack(t, raw.Bytes())
	inside := func(path string) string {
		real, err := onDisk(path)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimPrefix(real, "/")
	}
	for path, want := range map[string]string{
		data: "seven", filepath.Join(filepath.Dir(data), "link"): "→ a.txt",
		s.Config.Files[0]: "more", "/boot/config-1.2.3-test": "CONFIG_A=y\n",
		"/lib/modules/1.2.3-test/modules.dep": "",
	} {
		// The last element may itself be a link.
		name := filepath.Join(inside(filepath.Dir(path)), filepath.Base(path))
		if got, ok := files[name]; !ok || got != want {
			t.Errorf("%s: %q (%v), want %q", name, got, ok, want)
		}
	}
	for _, path := range []string{initPath, s.Init, "/dev/console", p.Dir} {
		if !has(files, strings.TrimPrefix(path, "/")) {
			t.Errorf("%s is missing", path)
		}
	}
	// A shell comes with its dynamic linker and libraries, or is static.
	sh, err := kernel.FindProgram("sh")
	if err != nil {
		t.Fatal(err)
	}
	libs, err := libraries(sh)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range append(libs, sh) {
		if !has(files, filepath.Join(inside(filepath.Dir(l)), filepath.Base(l))) {
			t.Errorf("%s of sh is missing", l)
		}
	}
	if target, err := os.Readlink("/lib"); err == nil && files["lib"] != "→ "+target {
		t.Errorf("lib is %q, on the host a link to %s", files["lib"], target)
	}
	if !strings.Contains(files[strings.TrimPrefix(planPath, "/")], `"-test.v"`) {
		t.Errorf("plan: %s", files["vmrun.json"])
	}
}

func TestWhatIsMissingIsSaid(t *testing.T) {
	for what, breakIt := range map[string]func(*Spec){
		"no-such-program": func(s *Spec) { s.Config.Programs = []string{"no-such-program"} },
		"/no/such/file":   func(s *Spec) { s.Config.Files = []string{"/no/such/file"} },
	} {
		s, p := testSpec(t)
		breakIt(&s)
		err := s.initramfs(io.Discard, p)
		if setup := (*kernel.SetupError)(nil); !errors.As(err, &setup) || !strings.Contains(err.Error(), what) || setup.Do == "" {
			t.Errorf("%s: %v, want what to do about it", what, err)
		}
	}
}

func TestLibraries(t *testing.T) {
	text := write(t, filepath.Join(t.TempDir(), "text"), "#!/bin/sh\n")
	if _, err := libraries(text); err == nil || !strings.Contains(err.Error(), "no executable") {
		t.Errorf("of a script: %v", err)
	}
	listed := "\tlinux-vdso.so.1 (0x00007fff6a9f2000)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f0e5b400000)\n\t/lib64/ld-linux-x86-64.so.2 (0x00007f0e5b6a0000)\n"
	var got []string
	for _, m := range library.FindAllStringSubmatch(listed, -1) {
		got = append(got, m[1])
	}
	if !slices.Equal(got, []string{"/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"}) {
		t.Errorf("libraries %q", got)
	}
}

func TestReadConsole(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "console"), strings.Repeat("[    0.1] line\r\n", 100)+
		"\x1b[mBUG: kernel NULL pointer dereference, address: 0\r\n[    2.0] Kernel panic - not syncing: Fatal exception\r\n")
	tail, reason := readConsole(path)
	if !strings.HasPrefix(reason, "BUG: kernel NULL pointer") || strings.ContainsAny(tail, "\r\x1b") || strings.Count(tail, "\n") != consoleTail-1 {
		t.Errorf("reason %q, tail %q", reason, tail)
	}
	if tail, reason := readConsole("/no/such/file"); tail != "" || reason != "" {
		t.Errorf("of nothing: %q, %q", tail, reason)
	}
}
