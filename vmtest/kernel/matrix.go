package kernel

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
)

// Kernel is a row of kernels.txt: a kernel and where it comes from.
type Kernel struct {
	Name    string // LABEL or LABEL-VARIANT, such as 6.1, newest or 5.10-generic
	Suite   string // Debian suite, such as bookworm
	Package string // linux-image-…, the kernel's own or one that depends on it
}

// The architectures of machines, as Go and Debian name them.
const (
	AMD64 = "amd64"
	ARM64 = "arm64"
)

// Arch returns the kernel's architecture. If it is not this machine's, the machine is emulated.
func (k Kernel) Arch() string { return archOf(k.Package) }

func archOf(pkg string) string {
	if strings.HasSuffix(pkg, "-"+ARM64) {
		return ARM64
	}
	return AMD64
}

// ReadMatrix reads a kernels.txt. Its errors name file, line and field.
func ReadMatrix(path string) ([]Kernel, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parseMatrix(path, f)
}

// parseMatrix parses a kernels.txt: one kernel per line, fields separated by white space, comments
// after "#". It returns all errors, joined; name is the file name in them.
func parseMatrix(name string, r io.Reader) ([]Kernel, error) {
	var (
		kernels []Kernel
		errs    []error
		seen    = map[string]int{}
		n       int
		lines   = bufio.NewScanner(r)
	)
	for lines.Scan() {
		n++
		text, _, _ := strings.Cut(lines.Text(), "#")
		fields := strings.Fields(text)
		if len(fields) == 0 {
			continue
		}
		k, err := parseKernel(fields)
		if err == nil && seen[k.Name] != 0 {
			err = fmt.Errorf("name: %s is on line %d already", k.Name, seen[k.Name])
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s:%d: %w", name, n, err))
			continue
		}
		seen[k.Name] = n
		kernels = append(kernels, k)
	}
	if err := lines.Err(); err != nil {
		errs = append(errs, fmt.Errorf("%s:%d: %w", name, n+1, err))
	}
	if len(kernels)+len(errs) == 0 {
		errs = append(errs, fmt.Errorf("%s: has no kernel", name))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return kernels, nil
}

// The fields are used in paths and in apt's sources, so they must not contain characters that are
// special there.
var (
	validName    = regexp.MustCompile(`^[a-z0-9][a-z0-9.]*(-[a-z0-9]+)?$`)
	validSuite   = regexp.MustCompile(`^[a-z][a-z0-9.-]*$`)
	validPackage = regexp.MustCompile(`^linux-image-[a-z0-9][a-z0-9.+-]*$`)
)

func parseKernel(fields []string) (Kernel, error) {
	if len(fields) != 3 {
		return Kernel{}, fmt.Errorf("has %d fields, not the 3 of name, suite and package", len(fields))
	}
	k := Kernel{Name: fields[0], Suite: fields[1], Package: fields[2]}
	switch {
	case !validName.MatchString(k.Name):
		return Kernel{}, fmt.Errorf("name: %q is not LABEL or LABEL-VARIANT of lower-case letters, digits and dots", k.Name)
	case !validSuite.MatchString(k.Suite):
		return Kernel{}, fmt.Errorf("suite: %q is not the name of one", k.Suite)
	case !validPackage.MatchString(k.Package):
		return Kernel{}, fmt.Errorf("package: %q is not linux-image-…", k.Package)
	}
	return k, nil
}

// Find returns the kernel of that name. Its error lists the existing names.
func Find(kernels []Kernel, name string) (Kernel, error) {
	names := make([]string, 0, len(kernels))
	for _, k := range kernels {
		if k.Name == name {
			return k, nil
		}
		names = append(names, k.Name)
	}
	return Kernel{}, fmt.Errorf("no kernel %q: there are %s", name, strings.Join(names, ", "))
}

// series matches a label that is a release number: 6.1, 7.2.13.
var series = regexp.MustCompile(`^[0-9]+(\.[0-9]+)+$`)

// matches reports whether a release belongs to the series of a label: 6.1 matches
// 6.1.0-50-cloud-amd64 but not 6.12.1. A label without a number, such as newest, matches any
// release.
func matches(label, release string) bool {
	if !series.MatchString(label) {
		return true
	}
	rest, ok := strings.CutPrefix(release, label)
	return ok && (rest == "" || rest[0] < '0' || rest[0] > '9')
}

func label(name string) string {
	l, _, _ := strings.Cut(name, "-")
	return l
}
