package kernel

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

func fakeImage(t *testing.T, cacheDir, name, release string) {
	t.Helper()
	dir := filepath.Join(cacheDir, "kernels", name)
	write(t, filepath.Join(dir, "vmlinuz"), "vmlinuz "+release)
	write(t, filepath.Join(dir, "config"), "config "+release)
	write(t, filepath.Join(dir, "lib/modules", release, "modules.dep.bin"), "")
	raw, err := json.Marshal(manifest{
		Name: name, Suite: "s", Package: "linux-image-amd64", Version: "v", Release: release,
		Vmlinuz: fmt.Sprintf("%x", sha256.Sum256([]byte("vmlinuz "+release))),
		Config:  fmt.Sprintf("%x", sha256.Sum256([]byte("config "+release))),
	})
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "manifest.json"), string(raw))
}

func TestOpen(t *testing.T) {
	cacheDir := t.TempDir()
	for name, release := range map[string]string{
		"5.10": "5.10.0-32-cloud-amd64", "5.10-generic": "5.10.0-32-amd64", "6.1": "6.1.0-50-cloud-amd64",
		"newest": "7.2.13+deb14-cloud-amd64", "newest-generic": "7.2.13+deb14-amd64", "rc": "7.3-cloud-amd64",
	} {
		fakeImage(t, cacheDir, name, release)
	}
	// Left by a killed fetch.
	fakeImage(t, cacheDir, "_6.12-1", "6.12.1-amd64")
	for name, want := range map[string]string{
		"5.10": "5.10", "5.10-generic": "5.10-generic", "newest": "newest", "rc": "rc",
		"7.2": "newest", "7.2.13": "newest", "7.2-generic": "newest-generic", "7.3": "rc",
		"7.2.13+deb14-cloud-amd64": "newest", "7.2.13+deb14-amd64": "newest-generic", "5.10.0-32-amd64": "5.10-generic",
	} {
		image, err := Open(cacheDir, name)
		if err != nil || image.Name != want {
			t.Errorf("%s is %+v, error %v, want %s", name, image, err, want)
		}
	}
	for _, name := range []string{"6.12", "7", "7.2.1", "6.1-generic", "7.3-generic", "", "..", "../kernels/5.10", "_6.12-1", "5.10.0-32"} {
		_, err := Open(cacheDir, name)
		if !errors.Is(err, ErrNotFetched) && name != "_6.12-1" {
			t.Errorf("%q: error is %v", name, err)
		}
		wantSetupError(t, err, fmt.Sprintf("kernel %s is not in %s, which has 5.10, ", name, cacheDir), fetchCommand)
	}

	fakeImage(t, cacheDir, "rc", "7.2.99-cloud-amd64")
	_, err := Open(cacheDir, "7.2")
	wantSetupError(t, err, "kernel 7.2 is both newest and rc: use one of these names")
	if errors.Is(err, ErrNotFetched) {
		t.Error("it is fetched, even twice")
	}
	_, err = Open(filepath.Join(cacheDir, "none"), "7.2")
	wantSetupError(t, err, "kernel 7.2 is not in "+cacheDir+"/none: "+fetchCommand)
}

func TestOpenCorrupt(t *testing.T) {
	cacheDir := t.TempDir()
	fakeImage(t, cacheDir, "6.1", "6.1.0-50-cloud-amd64")
	vmlinuz := filepath.Join(cacheDir, "kernels/6.1/vmlinuz")
	flip(t, vmlinuz)
	_, err := Open(cacheDir, "6.1")
	wantSetupError(t, err, "kernel 6.1 is corrupt: "+vmlinuz+" has SHA256 ", ": fetch it again: "+fetchCommand)
	for _, text := range []string{"", "{}", `{"name": "6.2"}`, `{"name": "6.1"}`, `{"name": "6.1", "release": "../x"}`} {
		write(t, filepath.Join(cacheDir, "kernels/6.1/manifest.json"), text)
		_, err := Open(cacheDir, "6.1")
		wantSetupError(t, err, "kernel 6.1 is corrupt: manifest.json: ", fetchCommand)
	}
}

func TestCacheDir(t *testing.T) {
	t.Setenv(cacheEnv, "/srv/cache")
	if dir, err := CacheDir(); err != nil || dir != "/srv/cache" {
		t.Errorf("%s, %v", dir, err)
	}
	t.Setenv(cacheEnv, "cache")
	if dir, err := CacheDir(); err != nil || !filepath.IsAbs(dir) || !strings.HasSuffix(dir, "/cache") {
		t.Errorf("%s, %v", dir, err)
	}
	t.Setenv(cacheEnv, "")
	t.Setenv("XDG_CACHE_HOME", "/home/me/.cache")
	if dir, err := CacheDir(); err != nil || dir != "/home/me/.cache/kernosis/vmtest" {
		t.Errorf("%s, %v", dir, err)
	}
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", "")
	_, err := CacheDir()
	wantSetupError(t, err, "set HOME or "+cacheEnv)
}
