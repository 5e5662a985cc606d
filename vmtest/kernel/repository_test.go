package kernel

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// repository is an unsigned Debian archive in a folder.
type repository struct {
	t   *testing.T
	dir string
}

// newRepository returns a repository whose suite stable has these packages, and a fetcher from it.
func newRepository(t *testing.T, stable ...pkg) (*repository, *testFetcher) {
	t.Helper()
	if err := findPrograms(); err != nil {
		t.Skip(err)
	}
	r := &repository{t: t, dir: t.TempDir()}
	if len(stable) > 0 {
		r.publish("stable", stable...)
	}
	return r, newFetcher(t, "file:"+r.dir, filepath.Join(t.TempDir(), "the cache"))
}

type pkg struct {
	name, version string
	depends       string
	installed     int64 // KiB
	files         map[string]string
}

// kernelPackages returns the packages of a kernel as in Debian up to 13: a meta package and one
// with all files.
func kernelPackages(release, version string) []pkg {
	lib := "lib/modules/" + release
	return []pkg{
		{name: "linux-image-amd64", version: version, depends: fmt.Sprintf("linux-image-%s (= %s)", release, version)},
		{name: "linux-image-" + release, version: version, depends: "kmod, linux-base (>= 4.3~)", files: map[string]string{
			"boot/vmlinuz-" + release: "vmlinuz of " + version, "boot/config-" + release: "CONFIG_EXT4_FS=m\n",
			"boot/System.map-" + release: "", lib + "/kernel/fs/ext4.ko": module("ext4", nil, nil), lib + "/modules.builtin": "kernel/drivers/block/loop.ko\n",
			lib + "/modules.order": "kernel/fs/ext4.ko\n",
		}},
	}
}

// splitPackages returns the packages of a kernel as in Debian since 7.x.
func splitPackages(release, version string) []pkg {
	lib := "usr/lib/modules/" + release
	on := func(parts ...string) string {
		var depends []string
		for _, p := range parts {
			depends = append(depends, fmt.Sprintf("linux-%s-%s (= %s)", p, release, version))
		}
		return strings.Join(depends, ", ")
	}
	return []pkg{
		{name: "linux-image-amd64", version: version, depends: "linux-base-amd64 (= " + version + "), " + on("image")},
		{name: "linux-base-amd64", version: version, depends: on("base")},
		{name: "linux-image-" + release, version: version, depends: "dracut | initramfs-tools, " + on("base", "binary", "modules")},
		{name: "linux-binary-" + release, version: version, depends: on("base"), files: map[string]string{lib + "/vmlinuz": "vmlinuz of " + version}},
		{name: "linux-modules-" + release, version: version, depends: "kmod, " + on("base"), files: map[string]string{
			lib + "/kernel/fs/ext4.ko": module("ext4", nil, nil),
		}},
		{name: "linux-base-" + release, version: version, files: map[string]string{
			lib + "/config": "CONFIG_EXT4_FS=m\n", lib + "/modules.builtin": "kernel/drivers/block/loop.ko\n", lib + "/modules.order": "kernel/fs/ext4.ko\n",
		}},
	}
}

func (r *repository) publish(suite string, packages ...pkg) {
	r.t.Helper()
	var index strings.Builder
	for _, p := range packages {
		control := fmt.Sprintf("Package: %s\nVersion: %s\nArchitecture: amd64\nMaintainer: nobody\nInstalled-Size: %d\nDepends: %s\nDescription: a test\n",
			p.name, p.version, p.installed, p.depends)
		if p.depends == "" {
			control = strings.Replace(control, "Depends: \n", "", 1)
		}
		deb := r.build(p, control)
		content := read(r.t, filepath.Join(r.dir, deb))
		fmt.Fprintf(&index, "%sFilename: %s\nSize: %d\nSHA256: %x\n\n", control, deb, len(content), sha256.Sum256([]byte(content)))
	}
	const path = "main/binary-amd64/Packages"
	dist := filepath.Join(r.dir, "dists", suite)
	write(r.t, filepath.Join(dist, path), index.String())
	write(r.t, filepath.Join(dist, "Release"), fmt.Sprintf("Origin: Test\nSuite: %s\nCodename: %s\nArchitectures: amd64\nComponents: main\nSHA256:\n %x %d %s\n",
		suite, suite, sha256.Sum256([]byte(index.String())), index.Len(), path))
}

// build creates the package's file and returns its path relative to the repository.
func (r *repository) build(p pkg, control string) string {
	r.t.Helper()
	root := r.t.TempDir()
	write(r.t, filepath.Join(root, "DEBIAN/control"), control)
	for path, content := range p.files {
		write(r.t, filepath.Join(root, path), content)
	}
	deb := filepath.Join("pool", p.name+"_"+p.version+"_amd64.deb")
	if err := os.MkdirAll(filepath.Join(r.dir, "pool"), 0o755); err != nil {
		r.t.Fatal(err)
	}
	out, err := exec.Command("dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", root, filepath.Join(r.dir, deb)).CombinedOutput()
	if err != nil {
		r.t.Fatalf("dpkg-deb: %v: %s", err, out)
	}
	return deb
}

func flip(t *testing.T, path string) {
	t.Helper()
	content := []byte(read(t, path))
	content[len(content)/2] ^= 1
	write(t, path, string(content))
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
