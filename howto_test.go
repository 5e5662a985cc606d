package kernosis_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/vmtest/testenv"
)

// sample is what a how-to lets the reader write: files of testdata/howto, and lines to add to
// existing files.
type sample struct {
	howto string
	most  int               // number of files written by hand
	files map[string]string // where a file of testdata/howto goes
	lines [][3]string       // file, a line in it, the line to add after it
	steps [][]string        // commands, in the order of the how-to
	shows string            // output of the last command
}

// A reader who follows a how-to gets a working operation, or rule, in the binary.
func TestHowtos(t *testing.T) {
	testenv.OnlyInTestAll(t)
	for name, s := range map[string]sample{
		"operation": {
			howto: "docs/howto/new-operation.md", most: 5,
			files: map[string]string{
				"sample_boot.go.txt": "diagnose/operation/node/sample_boot.go", "sample_boot_test.go.txt": "diagnose/operation/node/sample_boot_test.go",
				"sample-boot.yaml": "diagnose/manifest/sets/sample-boot.yaml",
			},
			lines: [][3]string{{"diagnose/operation/catalog/catalog.go", "\t\tnetwork.Routes(h),\n", "\t\tnode.SampleBoot(h),\n"}},
			steps: [][]string{
				{"go", "test", "./diagnose/operation/catalog", "-run", "TestDocs", "-update"},
				{"go", "test", "./diagnose/operation/catalog", "./diagnose/operation/node", "-run", "TestDocs|TestSampleBoot|TestBuiltinsAreDeclaredWell"},
				{"go", "build", "-o", "bin/kernosis", "./cmd/kernosis"},
				{"bin/kernosis", "diagnose", "run", "--shipped", "sample-boot", "--state-dir", "state"},
			},
			shows: "bootID",
		},
		"rule": {
			howto: "docs/howto/new-rule.md", most: 4,
			files: map[string]string{
				"klog-sample.yaml": "detector/rules/klog-sample.yaml", "klog-sample_test.yaml": "detector/rules/klog-sample_test.yaml",
				"SampleWidgetFailed.md": "docs/problems/SampleWidgetFailed.md",
			},
			steps: [][]string{
				{"go", "test", "./deploy/monitoring", "-run", "TestAlertTable", "-update"},
				{"go", "build", "-o", "bin/kernosis", "./cmd/kernosis"},
				{"bin/kernosis", "rules", "check"},
				{"bin/kernosis", "rules", "test", "--strict", "-o", "tap"},
			},
			shows: "sample-widget fires, ends and comes again",
		},
	} {
		t.Run(name, func(t *testing.T) { s.follow(t) })
	}
}

func (s *sample) follow(t *testing.T) {
	dir := copyModule(t)
	howto := read(t, s.howto)
	for from, to := range s.files {
		if !strings.Contains(howto, filepath.Dir(to)) {
			t.Errorf("%s does not name %s", s.howto, filepath.Dir(to))
		}
		if err := os.WriteFile(filepath.Join(dir, to), []byte(read(t, filepath.Join("testdata/howto", from))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	changed := map[string]bool{"CHANGELOG.md": true}
	for _, l := range s.lines {
		changed[l[0]] = true
		path := filepath.Join(dir, l[0])
		text := read(t, path)
		if !strings.Contains(text, l[1]) || !strings.Contains(howto, filepath.Base(l[0])) {
			t.Fatalf("%s has no %q, or %s does not name it", l[0], l[1], s.howto)
		}
		if err := os.WriteFile(path, []byte(strings.Replace(text, l[1], l[1]+l[2], 1)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(s.files) + len(changed); n > s.most {
		t.Errorf("%d files by hand, more than %d", n, s.most)
	}
	// No step affects the kernel, so none waits for the kernel lock.
	env := append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath -buildvcs=false", "PWD="+dir, "KERNELLOCK_HELD=1")
	var out []byte
	for _, step := range s.steps {
		cmd := exec.CommandContext(t.Context(), step[0], step[1:]...)
		cmd.Dir, cmd.Env = dir, env
		if strings.HasPrefix(step[0], "bin/") {
			cmd.Path = filepath.Join(dir, step[0])
			cmd.Err = nil
		}
		var err error
		if out, err = cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(step, " "), err, out)
		}
	}
	if !bytes.Contains(out, []byte(s.shows)) {
		t.Errorf("%q is not shown by %s:\n%s", s.shows, strings.Join(s.steps[len(s.steps)-1], " "), out)
	}
}

// copyModule returns a copy of the files that belong to the repository.
func copyModule(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	list, err := exec.CommandContext(t.Context(), "git", "ls-files", "-z").Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(list), "\x00"), "\x00") {
		info, err := os.Lstat(name)
		if os.IsNotExist(err) || err == nil && !info.Mode().IsRegular() {
			continue
		}
		target := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(target, []byte(read(t, name)), info.Mode().Perm()); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func read(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
