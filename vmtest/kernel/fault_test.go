package kernel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/vmtest/testenv"
)

// mirrorOfChild makes the test binary fetch from that mirror into cacheOfChild.
const (
	mirrorOfChild = "KERNEL_TEST_MIRROR"
	cacheOfChild  = "KERNEL_TEST_CACHE"
)

func TestMain(m *testing.M) {
	if mirror := os.Getenv(mirrorOfChild); mirror != "" {
		f := fetcher{cacheDir: os.Getenv(cacheOfChild), mirror: mirror, trusted: true, logf: func(string, ...any) {}}
		if _, err := f.fetch(context.Background(), stable); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// wrap puts a script with the name of a program before the real one in PATH. $real is the path of
// the real one.
func wrap(t *testing.T, name, script string) {
	t.Helper()
	path, err := FindProgram(name)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\nreal="+path+"\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// TestFetchKilled kills a fetch at each of its steps, as the OOM killer would.
func TestFetchKilled(t *testing.T) {
	testenv.OnlyInTestAll(t)
	for name, script := range map[string]string{
		"apt-cache": `kill -9 $PPID`,
		"apt-get":   `case "$*" in *" download "*) echo half >half.deb; kill -9 $PPID;; *) exec $real "$@";; esac`,
		"dpkg-deb":  `$real "$@"; kill -9 $PPID`,
		"depmod":    `$real "$@"; kill -9 $PPID`,
	} {
		t.Run(name, func(t *testing.T) {
			_, f := newRepository(t, kernelPackages("6.1.0-50-amd64", "6.1.176-1")...)
			path := os.Getenv("PATH")
			wrap(t, name, script)
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), mirrorOfChild+"="+f.mirror, cacheOfChild+"="+f.cacheDir)
			out, err := cmd.CombinedOutput()
			if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.Sys().(syscall.WaitStatus).Signal() != unix.SIGKILL {
				t.Fatalf("the fetch was not killed: %v: %s", err, out)
			}
			if _, err := Open(f.cacheDir, "6.1"); !errors.Is(err, ErrNotFetched) {
				t.Errorf("Open returns %v", err)
			}
			if half := f.left(t, "kernels"); (len(half) > 0) != (name == "dpkg-deb" || name == "depmod") {
				t.Errorf("images are %v", half)
			}

			t.Setenv("PATH", path)
			f.must(t, stable)
			f.wantLeft(t, "kernels", "6.1")
			f.wantLeft(t, "debs")
			if got := f.left(t, "apt/stable"); slices.Contains(got, packageCache) {
				t.Errorf("state of apt is %v", got)
			}
		})
	}
}

// TestFetchComparesSums uses an apt that accepts anything.
func TestFetchComparesSums(t *testing.T) {
	const accept = `case "$*" in *" download "*) echo >>%s; [ $(wc -l <%[1]s) -gt %d ] || { echo corrupt >x.deb; exit 0; };; esac; exec $real "$@"`
	for _, test := range []struct {
		corrupt int
		good    bool
	}{{1, true}, {2, false}} {
		t.Run(fmt.Sprintf("corrupt %d times", test.corrupt), func(t *testing.T) {
			r, f := newRepository(t, kernelPackages("6.1.0-50-amd64", "6.1.176-1")...)
			count := filepath.Join(t.TempDir(), "count")
			wrap(t, "apt-get", fmt.Sprintf(accept, count, test.corrupt))
			_, err := f.fetch(t.Context(), stable)
			if downloads := strings.Count(read(t, count), "\n"); downloads != 2 {
				t.Errorf("%d downloads", downloads)
			}
			if test.good {
				if err != nil {
					t.Error(err)
				}
				return
			}
			sum, sumErr := sum(filepath.Join(r.dir, "pool/linux-image-6.1.0-50-amd64_6.1.176-1_amd64.deb"))
			if sumErr != nil {
				t.Fatal(sumErr)
			}
			const corrupt = "06d0083ba740ff26c91cb17f10d15d398eea1affd3112599b429f30452b59db4"
			want := fmt.Sprintf("debs/linux-image-6.1.0-50-amd64_6.1.176-1_amd64.deb has SHA256 %s, not %s", corrupt, sum)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error is %v, want %s", err, want)
			}
			f.wantLeft(t, "debs")
			f.wantLeft(t, "kernels")
		})
	}
}

func TestFetchWithoutPrograms(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := findPrograms()
	// sbin is searched even if it is not in PATH: the kmod programs may be there.
	wantSetupError(t, err, "missing programs: apt-cache, apt-config, apt-get, ", "dpkg-deb", "install apt, dpkg")

	cacheDir := filepath.Join(t.TempDir(), "cache")
	if _, fetchErr := newFetcher(t, "file:/nowhere", cacheDir).fetch(t.Context(), stable); fetchErr == nil || fetchErr.Error() != err.Error() {
		t.Errorf("fetch returns %v, want %v", fetchErr, err)
	}
	if _, err := os.Stat(cacheDir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the cache was begun: %v", err)
	}
}

// TestFetchOnFullDisk fills a disk before the fetch, and while it unpacks: the packages here
// declare a size of 0.
func TestFetchOnFullDisk(t *testing.T) {
	testenv.OnlyInTestAll(t)
	if os.Getuid() != 0 {
		t.Skip("not root: no small filesystem to fill")
	}
	packages := kernelPackages("6.1.0-50-amd64", "6.1.176-1")
	packages[1].files["lib/modules/6.1.0-50-amd64/kernel/zeros"] = strings.Repeat("\x00", indexSpace+16<<20)
	r, _ := newRepository(t, packages...)
	for name, test := range map[string]struct {
		size int64 // size of the filesystem
		want string
	}{
		"before":          {16 << 20, "free 112 MiB there, or set " + cacheEnv},
		"while unpacking": {indexSpace + 8<<20, "free some space there, or set " + cacheEnv},
	} {
		t.Run(name, func(t *testing.T) {
			disk := t.TempDir()
			if err := unix.Mount("vmtest", disk, "tmpfs", 0, fmt.Sprintf("size=%d", test.size)); err != nil {
				t.Skipf("no small filesystem to fill: %v", err)
			}
			t.Cleanup(func() {
				if err := unix.Unmount(disk, 0); err != nil {
					t.Error(err)
				}
			})
			f := newFetcher(t, "file:"+r.dir, filepath.Join(disk, "cache"))
			_, err := f.fetch(t.Context(), stable)
			wantSetupError(t, err, "the disk of "+f.cacheDir+" is full", test.want)
			f.wantLeft(t, "kernels")
		})
	}
}

// TestFetchVerifiesSignature uses an unsigned archive.
func TestFetchVerifiesSignature(t *testing.T) {
	_, f := newRepository(t, kernelPackages("6.1.0-50-amd64", "6.1.176-1")...)
	f.trusted = false
	_, err := f.fetch(t.Context(), stable)
	wantSetupError(t, err, "is not signed")
	f.wantLeft(t, "kernels")
}

func TestFetchIntoReadOnlyFolder(t *testing.T) {
	newRepository(t)
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "")
	_, err := newFetcher(t, "file:/nowhere", filepath.Join(file, "cache")).fetch(t.Context(), stable)
	wantSetupError(t, err, file, "set "+cacheEnv)
}

// TestFetchHasAptOfItsOwn configures the machine's apt with a hook, which must not run (nor those
// in /etc/apt, if any), and with settings for reaching its mirror, which must be used.
func TestFetchHasAptOfItsOwn(t *testing.T) {
	_, f := newRepository(t, kernelPackages("6.1.0-50-amd64", "6.1.176-1")...)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "apt.conf"), `APT::Update::Pre-Invoke { "touch `+dir+`/ran"; };
Acquire::Retries "7";
Acquire::http::Proxy::localhost "DIRECT";
Acquire::IndexTargets::deb::Other::MetaKey "other";
`)
	t.Setenv("APT_CONFIG", filepath.Join(dir, "apt.conf"))
	f.must(t, stable)
	if _, err := os.Stat(filepath.Join(dir, "ran")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the hook ran: %v", err)
	}
	config := read(t, filepath.Join(f.cacheDir, "apt/stable-amd64/apt.conf"))
	for _, want := range []string{`Acquire::Retries "7";`, `Acquire::http::Proxy::localhost "DIRECT";`} {
		if !strings.Contains(config, want) {
			t.Errorf("configuration %q is without %s", config, want)
		}
	}
	s := suite{fetcher: f.fetcher, name: "stable", arch: AMD64}
	effective, err := s.apt(t.Context(), "", "apt-config", "dump")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(effective)) {
		if strings.Contains(line, "Invoke:: ") {
			t.Errorf("the machine's hook would run: %s", line)
		}
	}
	if strings.Contains(config, "Invoke") || strings.Contains(config, "Other") {
		t.Errorf("configuration is %q", config)
	}
}
