package main

import (
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// There is no arm64 machine for tests, so the arm64 program is emulated, as far as that works
// without its kernel.
func TestTheProgramForARM64Runs(t *testing.T) {
	program := filepath.Join(image(t), programFile("arm64"))
	emulated := []string{program}
	if runtime.GOARCH != "arm64" {
		emulated = []string{qemu(t), program}
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"version"}, "kernosis " + testVersion + "\nrevision " + testRevision + "\n"},
		{[]string{"version"}, "platform linux/arm64"},
		{[]string{"rules", "check", filepath.Join(moduleRoot, "detector", "rules")}, ": ok"},
	} {
		args := append(emulated[1:len(emulated):len(emulated)], c.args...)
		out, err := exec.CommandContext(t.Context(), emulated[0], args...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), c.want) {
			t.Errorf("%v: %v: %s", c.args, err, out)
		}
	}
}

func qemu(t *testing.T) string {
	t.Helper()
	// make qemu-user installs it below the module's folder.
	for _, name := range []string{"qemu-aarch64-static", "qemu-aarch64", filepath.Join(moduleRoot, "bin", "qemu-aarch64-static")} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("no qemu-aarch64 (make qemu-user)")
	return ""
}
