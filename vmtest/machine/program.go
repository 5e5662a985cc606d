package machine

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/kernosis/kernosis/vmtest/kernel"
)

// library is a line of what the dynamic linker lists: "libc.so.6 => /lib/libc.so.6
// (0x7f…)", or without "=>" for the linker itself.
var library = regexp.MustCompile(`(?m)^\s*(?:\S+ => )?(/\S+) \(0x[0-9a-f]+\)$`)

// findProgram returns where a program lies: in PATH, or where programs for
// administrators do, which PATH may lack.
func findProgram(name string) (string, error) {
	path, err := exec.LookPath(name)
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		if err == nil {
			break
		}
		path, err = exec.LookPath(filepath.Join(dir, name))
	}
	if err != nil {
		return "", &kernel.SetupError{What: name + " is not installed", Do: "make vmtest-setup installs what the machines need"}
	}
	return filepath.Abs(path)
}

// libraries returns the shared libraries of an executable, the dynamic linker
// included; none for a static one.
func libraries(path string) ([]string, error) {
	interp, err := interpreter(path)
	if err != nil || interp == "" {
		return nil, err
	}
	out, err := exec.CommandContext(context.Background(), interp, "--list", path).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("libraries of %s: %w: %s", path, err, out)
	}
	libs := []string{interp}
	for _, m := range library.FindAllStringSubmatch(string(out), -1) {
		if !slices.Contains(libs, m[1]) {
			libs = append(libs, m[1])
		}
	}
	return libs, nil
}

// interpreter returns the dynamic linker that an executable asks for; "" for a
// static one.
func interpreter(path string) (string, error) {
	f, err := elf.Open(path)
	if err != nil {
		if bad := (*elf.FormatError)(nil); errors.As(err, &bad) || errors.Is(err, io.EOF) {
			return "", fmt.Errorf("%s is no executable for Linux", path)
		}
		return "", err
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		raw := make([]byte, p.Filesz)
		if _, err := p.ReadAt(raw, 0); err != nil {
			return "", fmt.Errorf("interpreter of %s: %w", path, err)
		}
		return strings.TrimRight(string(raw), "\x00"), nil
	}
	return "", nil
}
