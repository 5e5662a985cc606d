package machine

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/kernosis/kernosis/vmtest/kernel"
)

// library matches a line of the dynamic linker's list: "libc.so.6 => /lib/libc.so.6 (0x7f…)", or
// without "=>" for the linker itself.
var library = regexp.MustCompile(`(?m)^\s*(?:\S+ => )?(/\S+) \(0x[0-9a-f]+\)$`)

// foreign locates programs of another architecture in a folder that is laid out like their root.
type foreign struct{ root string }

func (f foreign) find(name string) (string, error) {
	for _, dir := range []string{"/usr/bin", "/usr/sbin"} {
		path := filepath.Join(dir, name)
		if st, err := os.Stat(filepath.Join(f.root, path)); err == nil && st.Mode().IsRegular() {
			return path, nil
		}
	}
	return "", &kernel.SetupError{What: name + " is not in " + f.root, Do: "fetch the kernel again: make vmtest-kernels"}
}

// libraries returns the files that the dynamic linker would load for an executable, including
// itself, relative to the root. The linker can't be run here.
func (f foreign) libraries(path string) ([]string, error) {
	interp, err := interpreter(filepath.Join(f.root, path))
	if err != nil || interp == "" {
		return nil, err
	}
	libs := []string{filepath.Join("/usr", interp)} // /lib is a link to /usr/lib
	for next := []string{path}; len(next) > 0; next = next[1:] {
		file, err := elf.Open(filepath.Join(f.root, next[0]))
		if err != nil {
			return nil, err
		}
		names, err := file.ImportedLibraries()
		_ = file.Close()
		if err != nil {
			return nil, fmt.Errorf("libraries of %s: %w", next[0], err)
		}
		for _, name := range names {
			lib, err := f.library(name)
			if err != nil {
				return nil, fmt.Errorf("libraries of %s: %w", next[0], err)
			}
			if !slices.Contains(libs, lib) {
				libs, next = append(libs, lib), append(next, lib)
			}
		}
	}
	return libs, nil
}

func (f foreign) library(name string) (string, error) {
	for _, pattern := range []string{"/usr/lib/*-linux-gnu", "/usr/lib", "/usr/lib/*-linux-gnu/*"} {
		found, err := filepath.Glob(filepath.Join(f.root, pattern, name))
		if err != nil {
			return "", err
		}
		if len(found) > 0 {
			return strings.TrimPrefix(found[0], f.root), nil
		}
	}
	return "", fmt.Errorf("%s is not in %s", name, f.root)
}

// libraries returns the shared libraries of an executable, including the dynamic linker; none if it
// is static.
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

// interpreter returns the dynamic linker that an executable requests; "" if it is static.
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
