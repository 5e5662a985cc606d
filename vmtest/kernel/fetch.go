package kernel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/vmtest/testenv"
)

// indexSpace is the space needed for a suite's index: 11 MB compressed, twice as much unpacked,
// once more while the old one still exists, and apt's cache of it.
const indexSpace = 128 << 20

type fetcher struct {
	cacheDir string
	mirror   string
	trusted  bool // skip the verification of signatures: tests can't create any
	logf     func(format string, args ...any)
}

// Fetch brings a cached kernel up to date with its suite: it fetches the image if the cache has
// none, if the suite has another version, or if the cached one is corrupt. It logs slow steps
// through logf, one line per call.
//
// If the mirror is unreachable, Fetch returns the cached image, if any. A *SetupError says what
// this machine lacks. If a fetch is killed, the cache never has a partial image.
func Fetch(ctx context.Context, k Kernel, cacheDir string, logf func(format string, args ...any)) (Image, error) {
	mirror, err := findMirror("/etc/apt")
	if err != nil {
		return Image{}, err
	}
	if _, err := os.Stat(keyring); err != nil {
		return Image{}, &SetupError{What: "no key to verify Debian's archive with", Do: "install the package debian-archive-keyring", Err: err}
	}
	return fetcher{cacheDir: cacheDir, mirror: mirror, logf: logf}.fetch(ctx, k)
}

func (f fetcher) fetch(ctx context.Context, k Kernel) (Image, error) {
	if err := findPrograms(); err != nil {
		return Image{}, err
	}
	for _, dir := range []string{imagesDir(f.cacheDir), f.debsDir()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return Image{}, &SetupError{What: err.Error(), Do: "set " + cacheEnv + " to a folder that can be written", Err: err}
		}
	}
	lock, err := testenv.LockFile(ctx, filepath.Join(f.cacheDir, "lock"), func() { f.logf("%s: waiting for another fetch", k.Name) })
	if err != nil {
		return Image{}, err
	}
	defer lock.Close()
	if err := sweep(f.cacheDir); err != nil {
		return Image{}, err
	}
	image, err := f.update(ctx, k, lock)
	// Other processes use the disk too, so it may fill up despite the check.
	if complains(err, "No space left on device") || complains(err, "enough free space") || errors.Is(err, unix.ENOSPC) {
		return Image{}, noSpace(f.cacheDir, "some space", err)
	}
	return image, err
}

// update is fetch with the cache's lock held.
func (f fetcher) update(ctx context.Context, k Kernel, lock *os.File) (Image, error) {
	// The usable cached image, if any. An image made from another row of the same name is not
	// usable.
	have, err := readManifest(f.cacheDir, k.Name)
	var image Image
	if err == nil && have.Suite == k.Suite && have.Package == k.Package {
		if image, err = have.verify(f.cacheDir); err != nil {
			f.logf("%v", err)
		}
	}
	if err := checkSpace(f.cacheDir, indexSpace); err != nil {
		return Image{}, err
	}
	s := suite{fetcher: f, name: k.Suite, arch: k.Arch(), lock: lock}
	if err := s.setUp(ctx); err != nil {
		return Image{}, err
	}
	defer func() { _ = os.Remove(s.path(packageCache)) }() // an error means that apt created none
	if err := s.updateIndex(ctx); err != nil {
		if image.Name != "" && ctx.Err() == nil {
			f.logf("%s: keeping %s: %v", k.Name, image.Version, err)
			return image, nil
		}
		return Image{}, err
	}
	records, err := s.resolve(ctx, k.Package)
	if err != nil {
		return Image{}, err
	}
	if err := checkRelease(k, records); err != nil {
		return Image{}, err
	}
	if image.Name != "" && have.madeOf(records) {
		f.logf("%s: %s is up to date", k.Name, image.Version)
		return image, nil
	}
	return s.install(ctx, k, records)
}

// imagePart returns the package that is named after a kernel's release.
func imagePart(records []record) (r record, release string) {
	for _, r := range records {
		if release, ok := strings.CutPrefix(r.name, "linux-image-"); ok {
			return r, release
		}
	}
	return record{}, ""
}

// checkRelease returns an error if a suite no longer contains the kernel that kernels.txt promises.
func checkRelease(k Kernel, records []record) error {
	switch _, release := imagePart(records); {
	case release == "":
		return &SetupError{
			What: fmt.Sprintf("package %s of suite %s depends on no kernel", k.Package, k.Suite), Do: "correct kernels.txt",
		}
	case !matches(label(k.Name), release):
		return &SetupError{
			What: fmt.Sprintf("kernel %s: suite %s has %s now", k.Name, k.Suite, release),
			Do:   "correct kernels.txt; a name without a number may move with its suite",
		}
	default:
		return nil
	}
}

// madeOf reports whether the image was made from exactly these packages.
func (m manifest) madeOf(records []record) bool {
	return slices.EqualFunc(m.Packages, records, func(p manifestPackage, r record) bool {
		return p.Name == r.name && p.Version == r.version && p.SHA256 == r.sha256
	})
}

func (s suite) install(ctx context.Context, k Kernel, records []record) (Image, error) {
	var download, unpacked int64
	for _, r := range records {
		unpacked += r.installed
		if st, err := os.Stat(filepath.Join(s.debsDir(), r.file)); err != nil || st.Size() != r.size {
			download += r.size
		}
	}
	// depmod's indexes are a few per cent of the modules' size.
	if err := checkSpace(s.cacheDir, download+unpacked+unpacked/10); err != nil {
		return Image{}, err
	}
	part, _ := imagePart(records)
	s.logf("%s: fetching %s %s, %s, from %s", k.Name, part.name, part.version, mib(download), s.mirror)
	var debs []string
	for _, r := range records {
		deb, err := s.download(ctx, r)
		if err != nil {
			return Image{}, err
		}
		debs = append(debs, deb)
	}
	tmp, err := os.MkdirTemp(imagesDir(s.cacheDir), unfinished+k.Name+"-")
	if err != nil {
		return Image{}, err
	}
	if err := errors.Join(os.Chmod(tmp, 0o755), s.unpack(ctx, k, records, debs, tmp)); err != nil {
		return Image{}, errors.Join(fmt.Errorf("unpack %s: %w", part.name, err), os.RemoveAll(tmp))
	}
	if err := s.fetchUserland(ctx, tmp); err != nil {
		return Image{}, errors.Join(err, os.RemoveAll(tmp))
	}
	if err := replace(s.cacheDir, tmp, k.Name); err != nil {
		return Image{}, err
	}
	// Only the image is needed. The packages, including those of broken fetches, would take the
	// same space again.
	if err := os.RemoveAll(s.debsDir()); err != nil {
		return Image{}, err
	}
	return Open(s.cacheDir, k.Name)
}

func (f fetcher) debsDir() string { return filepath.Join(f.cacheDir, "debs") }

// download returns the path of a package file that matches the index. It reuses a valid file of an
// earlier broken fetch, and fetches an invalid one again, once.
func (s suite) download(ctx context.Context, r record) (string, error) {
	path := filepath.Join(s.debsDir(), r.file)
	err := checkSum(path, r.sha256)
	for range 2 {
		if err == nil {
			return path, nil
		}
		if _, bad := errors.AsType[*sumError](err); bad {
			s.logf("refused and fetched again: %v", err)
			if err := os.Remove(path); err != nil {
				return "", err
			}
		} else if !errors.Is(err, os.ErrNotExist) {
			return "", err
		}
		if err := s.downloadTo(ctx, r, path); err != nil {
			return "", err
		}
		err = checkSum(path, r.sha256)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(path))
	}
	return path, err
}
