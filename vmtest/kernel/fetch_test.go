package kernel

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kernosis/kernosis/vmtest/testenv"
)

type testFetcher struct {
	fetcher
	mu  sync.Mutex
	log []string
}

func newFetcher(t *testing.T, mirror, cacheDir string) *testFetcher {
	t.Helper()
	f := &testFetcher{}
	f.fetcher = fetcher{cacheDir: cacheDir, mirror: mirror, trusted: true, logf: func(format string, args ...any) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.log = append(f.log, fmt.Sprintf(format, args...))
	}}
	return f
}

func (f *testFetcher) must(t *testing.T, k Kernel) Image {
	t.Helper()
	image, err := f.fetch(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// reported returns how many lines of the log contain the text.
func (f *testFetcher) reported(text string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, l := range f.log {
		if strings.Contains(l, text) {
			n++
		}
	}
	return n
}

func (f *testFetcher) left(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(f.cacheDir, dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func (f *testFetcher) wantLeft(t *testing.T, dir string, want ...string) {
	t.Helper()
	if got := f.left(t, dir); !slices.Equal(got, want) {
		t.Errorf("%s has %v, want %v", dir, got, want)
	}
}

func wantSetupError(t *testing.T, err error, texts ...string) {
	t.Helper()
	reported, ok := errors.AsType[*SetupError](err)
	if !ok {
		t.Fatalf("error is %v, not a *SetupError", err)
	}
	for _, text := range texts {
		if !strings.Contains(reported.Error(), text) {
			t.Errorf("error is %q, without %q", reported, text)
		}
	}
}

var stable = Kernel{Name: "6.1", Suite: "stable", Package: "linux-image-amd64"}

func TestFetch(t *testing.T) {
	const release, version = "6.1.0-50-amd64", "6.1.176-1~exp1+b1"
	for name, packages := range map[string][]pkg{
		"one package": kernelPackages(release, version),
		"split":       splitPackages(release, version),
	} {
		t.Run(name, func(t *testing.T) {
			older := kernelPackages("6.1.0-49-amd64", "6.1.170-1")[1:]
			_, f := newRepository(t, append(older, packages...)...)
			image := f.must(t, stable)
			dir := filepath.Join(f.cacheDir, "kernels/6.1")
			want := Image{
				Name: "6.1", Release: release, Package: "linux-image-amd64", Version: version,
				Vmlinuz: dir + "/vmlinuz", Config: dir + "/config", ModulesDir: dir + "/lib/modules/" + release,
			}
			if image != want {
				t.Errorf("image is %+v, want %+v", image, want)
			}
			if got := read(t, image.Vmlinuz); got != "vmlinuz of "+version {
				t.Errorf("vmlinuz is %q", got)
			}
			if got := read(t, image.Config); got != "CONFIG_EXT4_FS=m\n" {
				t.Errorf("config is %q", got)
			}
			files, missing, err := image.Modules([]string{"ext4", "loop", "xfs"})
			if err != nil || !slices.Equal(files, []string{"kernel/fs/ext4.ko"}) || !slices.Equal(missing, []string{"xfs"}) {
				t.Errorf("modules are %v, missing %v, error %v", files, missing, err)
			}
			f.wantLeft(t, "kernels/6.1", "config", "lib", "manifest.json", "usr", "vmlinuz")
			f.wantLeft(t, "debs")
			if opened, err := Open(f.cacheDir, "6.1"); err != nil || opened != image {
				t.Errorf("Open returns %+v, %v", opened, err)
			}

			again := f.must(t, stable)
			if again != image || f.reported("fetching") != 1 || f.reported("up to date") != 1 {
				t.Errorf("second fetch returns %+v and reported %q", again, f.log)
			}
		})
	}
}

func TestFetchReplacesOlder(t *testing.T) {
	r, f := newRepository(t, kernelPackages("6.1.0-49-amd64", "6.1.170-1")...)
	f.must(t, stable)
	r.publish("stable", splitPackages("6.1.0-50-amd64", "6.1.176-1")...)
	image := f.must(t, stable)
	if image.Release != "6.1.0-50-amd64" {
		t.Errorf("release is %s", image.Release)
	}
	f.wantLeft(t, "kernels", "6.1")
	f.wantLeft(t, "kernels/6.1/lib/modules", image.Release)
}

// TestFetchPinned publishes two versions of a kernel: a meta package that requires the older one
// gets it.
func TestFetchPinned(t *testing.T) {
	const release = "6.1.0-50-amd64"
	_, f := newRepository(t, append(kernelPackages(release, "6.1.177-1")[1:], kernelPackages(release, "6.1.176-1")...)...)
	if image := f.must(t, stable); image.Version != "6.1.176-1" || read(t, image.Vmlinuz) != "vmlinuz of 6.1.176-1" {
		t.Errorf("version is %s", image.Version)
	}
	// By its own name, the newest version is fetched.
	if image := f.must(t, Kernel{Name: "6.1", Suite: "stable", Package: "linux-image-" + release}); image.Version != "6.1.177-1" {
		t.Errorf("version is %s", image.Version)
	}
}

func TestFetchOffline(t *testing.T) {
	r, f := newRepository(t, kernelPackages("6.1.0-50-amd64", "6.1.176-1")...)
	image := f.must(t, stable)
	if err := os.RemoveAll(filepath.Join(r.dir, "dists")); err != nil {
		t.Fatal(err)
	}
	if again := f.must(t, stable); again != image || f.reported("keeping 6.1.176-1") != 1 {
		t.Errorf("image is %+v, reported %q", again, f.log)
	}

	_, err := f.fetch(t.Context(), Kernel{Name: "6.1", Suite: "other", Package: "linux-image-amd64"})
	wantSetupError(t, err, "suite other", f.mirror, mirrorEnv)
	write(t, image.Vmlinuz, "something else")
	_, err = f.fetch(t.Context(), stable)
	wantSetupError(t, err, "suite stable", f.mirror, mirrorEnv)
}

func TestFetchMendsImage(t *testing.T) {
	_, f := newRepository(t, kernelPackages("6.1.0-50-amd64", "6.1.176-1")...)
	image := f.must(t, stable)
	for _, damage := range []func(t *testing.T){
		func(t *testing.T) { flip(t, image.Vmlinuz) },
		func(t *testing.T) { flip(t, image.Config) },
		func(t *testing.T) { write(t, filepath.Join(f.cacheDir, "kernels/6.1/manifest.json"), `{"name": `) },
		func(t *testing.T) {
			if err := os.RemoveAll(image.ModulesDir); err != nil {
				t.Fatal(err)
			}
		},
	} {
		damage(t)
		_, err := Open(f.cacheDir, "6.1")
		wantSetupError(t, err, "kernel 6.1 is corrupt", fetchCommand)
		if again := f.must(t, stable); again != image {
			t.Errorf("image is %+v", again)
		}
	}
}

func TestFetchRefusesCorruptPackage(t *testing.T) {
	packages := splitPackages("6.1.0-50-amd64", "6.1.176-1")
	r, f := newRepository(t, packages...)
	flip(t, filepath.Join(r.dir, "pool/linux-modules-6.1.0-50-amd64_6.1.176-1_amd64.deb"))
	_, err := f.fetch(t.Context(), stable)
	wantSetupError(t, err, "linux-modules-6.1.0-50-amd64", "Hash Sum mismatch")
	if _, err := Open(f.cacheDir, "6.1"); !errors.Is(err, ErrNotFetched) {
		t.Errorf("Open returns %v", err)
	}
	f.wantLeft(t, "kernels")
	for _, name := range f.left(t, "debs") {
		if strings.Contains(name, "linux-modules") {
			t.Errorf("%s is left", name)
		}
	}
	r.publish("stable", packages...)
	f.must(t, stable)
}

func TestFetchRefusesCorruptCachedPackage(t *testing.T) {
	r, f := newRepository(t, kernelPackages("6.1.0-50-amd64", "6.1.176-1")...)
	const name = "linux-image-6.1.0-50-amd64_6.1.176-1_amd64.deb"
	write(t, filepath.Join(f.debsDir(), name), read(t, filepath.Join(r.dir, "pool", name)))
	flip(t, filepath.Join(f.debsDir(), name))
	f.must(t, stable)
	if f.reported("refused and fetched again: "+filepath.Join(f.debsDir(), name)) != 1 {
		t.Errorf("reported %q", f.log)
	}
}

// TestFetchKeepsPackages checks that a valid package of a broken fetch is reused.
func TestFetchKeepsPackages(t *testing.T) {
	packages := kernelPackages("6.1.0-50-amd64", "6.1.176-1")
	delete(packages[1].files, "boot/config-6.1.0-50-amd64")
	r, f := newRepository(t, packages...)
	if _, err := f.fetch(t.Context(), stable); err == nil || !strings.Contains(err.Error(), "have no boot/config-6.1.0-50-amd64") {
		t.Errorf("error is %v", err)
	}
	f.wantLeft(t, "kernels")
	if got := f.left(t, "debs"); len(got) != 1 {
		t.Fatalf("packages are %v", got)
	}
	if err := os.RemoveAll(filepath.Join(r.dir, "pool")); err != nil {
		t.Fatal(err)
	}
	if _, err := f.fetch(t.Context(), stable); err == nil || !strings.Contains(err.Error(), "have no boot/config") {
		t.Errorf("error is %v", err)
	}
}

func TestFetchErrors(t *testing.T) {
	r, f := newRepository(t)
	huge := kernelPackages("6.1.0-50-amd64", "6.1.176-1")
	huge[1].installed = 1 << 39
	r.publish("huge", huge...)
	r.publish("stable", kernelPackages("6.1.0-50-amd64", "6.1.176-1")...)
	r.publish("empty", pkg{name: "linux-image-amd64", version: "1", depends: "linux-base"})
	r.publish("broken", kernelPackages("6.1.0-50-amd64", "6.1.176-1")[:1]...)
	for name, test := range map[string]struct {
		kernel Kernel
		want   []string
	}{
		"no such package":   {Kernel{Name: "6.1", Suite: "stable", Package: "linux-image-riscv"}, []string{"suite stable has no package linux-image-riscv", "kernels.txt"}},
		"no such suite":     {Kernel{Name: "6.1", Suite: "gone", Package: "linux-image-amd64"}, []string{"suite gone of file:", mirrorEnv}},
		"no kernel":         {Kernel{Name: "6.1", Suite: "empty", Package: "linux-image-amd64"}, []string{"package linux-image-amd64 of suite empty depends on no kernel", "kernels.txt"}},
		"half a suite":      {Kernel{Name: "6.1", Suite: "broken", Package: "linux-image-amd64"}, []string{"suite broken has no package linux-image-6.1.0-50-amd64"}},
		"moved on":          {Kernel{Name: "5.10", Suite: "stable", Package: "linux-image-amd64"}, []string{"kernel 5.10: suite stable has 6.1.0-50-amd64 now", "kernels.txt"}},
		"no room by far":    {Kernel{Name: "6.1", Suite: "huge", Package: "linux-image-amd64"}, []string{"the disk of " + f.cacheDir + " is full: free 5", " MiB there, or set " + cacheEnv}},
		"no similar number": {Kernel{Name: "6.10", Suite: "stable", Package: "linux-image-amd64"}, []string{"has 6.1.0-50-amd64 now"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := f.fetch(t.Context(), test.kernel)
			wantSetupError(t, err, test.want...)
			f.wantLeft(t, "kernels")
		})
	}
	t.Run("moves with its suite", func(t *testing.T) {
		if image := f.must(t, Kernel{Name: "newest", Suite: "stable", Package: "linux-image-amd64"}); image.Release != "6.1.0-50-amd64" {
			t.Errorf("release is %s", image.Release)
		}
	})
}

// TestFetchTwiceAtOnce checks that a fetch waits for a concurrent one and uses its result.
func TestFetchTwiceAtOnce(t *testing.T) {
	_, f := newRepository(t, splitPackages("6.1.0-50-amd64", "6.1.176-1")...)
	var images [3]Image
	var all sync.WaitGroup
	for i := range images {
		all.Go(func() {
			var err error
			if images[i], err = f.fetch(t.Context(), stable); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if images[0] != images[1] || images[0] != images[2] || f.reported("fetching") != 1 || f.reported("up to date") != 2 {
		t.Errorf("images are %+v, reported %q", images, f.log)
	}
}

func TestFetchIsCancelledWhileItWaits(t *testing.T) {
	_, f := newRepository(t)
	write(t, filepath.Join(f.cacheDir, "lock"), "")
	lock, err := testenv.LockFile(t.Context(), filepath.Join(f.cacheDir, "lock"), func() {})
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	ctx, cancel := context.WithCancel(t.Context())
	report := f.logf
	f.logf = func(format string, args ...any) { report(format, args...); cancel() }
	if _, err := f.fetch(ctx, stable); !errors.Is(err, context.Canceled) || f.reported("waiting for another fetch") != 1 {
		t.Errorf("error is %v, reported %q", err, f.log)
	}
}
