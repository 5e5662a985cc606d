package kernel

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// ErrNotFetched means that the cache does not contain the kernel.
var ErrNotFetched = errors.New("not fetched")

// fetchCommand is the command that fills the cache.
const fetchCommand = "make vmtest-kernels"

// cacheEnv names the environment variable that overrides the folder of the kernels.
const cacheEnv = "KERNOSIS_VMTEST_CACHE"

// CacheDir returns the folder of the kernels. It may not exist yet.
func CacheDir() (string, error) {
	if dir := os.Getenv(cacheEnv); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", &SetupError{What: err.Error(), Do: "set HOME or " + cacheEnv, Err: err}
	}
	return filepath.Join(dir, "kernosis", "vmtest"), nil
}

// Image is a kernel in the cache.
type Image struct {
	Name       string // its row in kernels.txt
	Release    string // as uname -r prints it
	Vmlinuz    string // path of the kernel, for QEMU's -kernel
	Config     string // path of the configuration it was built with
	ModulesDir string // path of lib/modules/RELEASE, with depmod's indexes
	Package    string // the package it was fetched by
	Version    string // of the package that holds the kernel
	Root       string // path of programs for its architecture; empty if this machine's own can be used
}

// Arch returns the image's architecture, AMD64 or ARM64.
func (i Image) Arch() string { return archOf(i.Package) }

// manifest is the content of an image's manifest.json: what the image was made from.
type manifest struct {
	Name    string `json:"name"`
	Suite   string `json:"suite"`
	Package string `json:"package"`
	Version string `json:"version"`
	Release string `json:"release"`
	// SHA256 hashes of the image's files, hexadecimal.
	Vmlinuz string `json:"vmlinuz_sha256"`
	Config  string `json:"config_sha256"`
	// The unpacked packages.
	Packages []manifestPackage `json:"packages"`
}

type manifestPackage struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	SHA256  string `json:"sha256"`
}

// Names in an image's folder. Modules are below lib/modules; usr/lib links to lib, because programs
// of kmod use one or the other.
const (
	vmlinuzFile  = "vmlinuz"
	configFile   = "config"
	manifestFile = "manifest.json"
)

// imagesDir returns the folder of all images, each in a folder named after its kernel. Names of
// unfinished ones start with unfinished, which no kernel's name does.
func imagesDir(cacheDir string) string { return filepath.Join(cacheDir, "kernels") }

const unfinished = "_"

// Open returns the cached kernel of that name. If there is none, the name may be a release number:
// "7.2" selects the newest kernel if that is a 7.2, and "7.2-generic" its generic flavour.
//
// Open verifies the kernel against what was fetched, which reads 15 MB. If that fails, a
// *SetupError says what is wrong and what to do; it wraps ErrNotFetched if the cache has no such
// kernel.
func Open(cacheDir, name string) (Image, error) {
	if validName.MatchString(name) {
		m, err := readManifest(cacheDir, name)
		if err == nil {
			return m.verify(cacheDir)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return Image{}, corrupt(name, err)
		}
	}
	m, err := findRelease(cacheDir, name)
	if err != nil {
		return Image{}, err
	}
	return m.verify(cacheDir)
}

// findRelease returns the image whose release number is name.
func findRelease(cacheDir, name string) (manifest, error) {
	entries, err := os.ReadDir(imagesDir(cacheDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return manifest{}, err
	}
	label, variant, _ := strings.Cut(name, "-")
	var found []manifest
	var names []string
	for _, e := range entries {
		m, err := readManifest(cacheDir, e.Name())
		if err != nil {
			continue // unfinished, or an error that is reported when it is opened by name
		}
		names = append(names, m.Name)
		_, v, _ := strings.Cut(m.Name, "-")
		if m.Release == name || (series.MatchString(label) && v == variant && matches(label, m.Release)) {
			found = append(found, m)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		what := fmt.Sprintf("kernel %s is not in %s", name, cacheDir)
		if len(names) > 0 {
			what += ", which has " + strings.Join(names, ", ")
		}
		return manifest{}, &SetupError{What: what, Do: fetchCommand, Err: ErrNotFetched}
	default:
		return manifest{}, &SetupError{
			What: fmt.Sprintf("kernel %s is both %s and %s", name, found[0].Name, found[1].Name), Do: "use one of these names",
		}
	}
}

func readManifest(cacheDir, name string) (manifest, error) {
	var m manifest
	raw, err := os.ReadFile(filepath.Join(imagesDir(cacheDir), name, manifestFile))
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return m, fmt.Errorf("%s: %w", manifestFile, err)
	}
	if m.Name != name || m.Release == "" || m.Release != filepath.Base(m.Release) {
		return m, fmt.Errorf("%s: is not of kernel %s", manifestFile, name)
	}
	return m, nil
}

func corrupt(name string, err error) error {
	return &SetupError{What: fmt.Sprintf("kernel %s is corrupt: %v", name, err), Do: "fetch it again: " + fetchCommand, Err: err}
}

// verify returns the image of a manifest if its files match it.
func (m manifest) verify(cacheDir string) (Image, error) {
	dir := filepath.Join(imagesDir(cacheDir), m.Name)
	i := Image{
		Name: m.Name, Release: m.Release, Package: m.Package, Version: m.Version,
		Vmlinuz: filepath.Join(dir, vmlinuzFile), Config: filepath.Join(dir, configFile),
		ModulesDir: filepath.Join(dir, "lib/modules", m.Release),
	}
	if i.Arch() != runtime.GOARCH {
		i.Root = filepath.Join(dir, rootDir)
	}
	for path, want := range map[string]string{i.Vmlinuz: m.Vmlinuz, i.Config: m.Config} {
		if err := checkSum(path, want); err != nil {
			return Image{}, corrupt(m.Name, err)
		}
	}
	// depmod writes its indexes last.
	if _, err := os.Stat(filepath.Join(i.ModulesDir, "modules.dep.bin")); err != nil {
		return Image{}, corrupt(m.Name, err)
	}
	return i, nil
}

func checkSum(path, want string) error {
	sum, err := sum(path)
	if err != nil {
		return err
	}
	if sum != want {
		return &sumError{path: path, want: want, found: sum}
	}
	return nil
}

func sum(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

type sumError struct{ path, want, found string }

func (e *sumError) Error() string {
	return fmt.Sprintf("%s has SHA256 %s, not %s", e.path, e.found, e.want)
}
