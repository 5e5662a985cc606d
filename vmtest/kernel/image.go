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

// cacheEnv overrides the folder that kernels are kept in.
const cacheEnv = "KERNOSIS_VMTEST_CACHE"

// CacheDir returns the folder that kernels are kept in. It need not exist.
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
	ModulesDir string // path of its lib/modules/RELEASE, with the indexes of depmod
	Package    string // that it was fetched by
	Version    string // of the package that holds the kernel
	Root       string // path of programs for its architecture; "": this machine's own will do
}

// Arch is the image's architecture, AMD64 or ARM64.
func (i Image) Arch() string { return archOf(i.Package) }

// manifest is an image's manifest.json: what it was made of.
type manifest struct {
	Name    string `json:"name"`
	Suite   string `json:"suite"`
	Package string `json:"package"`
	Version string `json:"version"`
	Release string `json:"release"`
	// SHA256 of files of the image, hexadecimal.
	Vmlinuz string `json:"vmlinuz_sha256"`
	Config  string `json:"config_sha256"`
	// What was unpacked.
	Packages []manifestPackage `json:"packages"`
}

type manifestPackage struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	SHA256  string `json:"sha256"`
}

// Names in an image's folder. Modules are below lib/modules, and usr/lib is the
// same folder: programs of kmod look in one or the other.
const (
	vmlinuzFile  = "vmlinuz"
	configFile   = "config"
	manifestFile = "manifest.json"
)

// imagesDir is the folder of all images, each in one of its kernel's name.
// Unfinished ones have names that begin with unfinished, which no kernel has.
func imagesDir(cacheDir string) string { return filepath.Join(cacheDir, "kernels") }

const unfinished = "_"

// Open returns a kernel of the cache: the one of that name, or where there is
// none, the one that it is the number of: with "7.2" the newest kernel as long as
// that is a 7.2, with "7.2-generic" its generic flavour.
//
// The kernel is verified against what was fetched, 15 MB of reading. A *SetupError
// says what is wrong and what to do; it wraps ErrNotFetched where the cache has
// no such kernel.
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

// findRelease returns the image that a name is the number of.
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
			continue // unfinished, or it says so when it is asked for by name
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

// verify returns the image of a manifest where it is what the manifest says.
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

// checkSum compares a file's SHA256 with the wanted one.
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

// sumError is a file that is not what it should be.
type sumError struct{ path, want, found string }

func (e *sumError) Error() string {
	return fmt.Sprintf("%s has SHA256 %s, not %s", e.path, e.found, e.want)
}
