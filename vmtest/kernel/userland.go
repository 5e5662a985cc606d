package kernel

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
)

// userland returns the packages of the programs named in vm.yaml. For another architecture than
// this machine's they are fetched with the kernel, and never run here.
func userland() []string {
	return []string{
		"btrfs-progs", "coreutils", "dash", "dmsetup", "e2fsprogs", "kmod", "mount", "nftables", "util-linux", "xfsprogs",
	}
}

// rootDir is the folder of an image that contains these programs.
const rootDir = "root"

// fetchUserland unpacks the programs and their dependencies below dir if the suite's architecture
// differs from this machine's.
func (s suite) fetchUserland(ctx context.Context, dir string) (err error) {
	if s.arch == runtime.GOARCH {
		return nil
	}
	// apt verifies the packages against the signed index.
	defer func() { err = errors.Join(err, os.RemoveAll(s.path("archives"))) }()
	args := append([]string{"-o", "Debug::NoLocking=1", "--download-only", "--yes", "--no-install-recommends", "install"}, userland()...)
	if _, err := s.apt(ctx, "", "apt-get", args...); err != nil {
		return s.explain(err)
	}
	debs, err := filepath.Glob(s.path("archives/*.deb"))
	if err != nil {
		return err
	}
	for _, deb := range debs {
		c := command{name: "dpkg-deb", args: []string{"-x", deb, filepath.Join(dir, rootDir)}, keep: []*os.File{s.lock}}
		if _, err := c.run(ctx); err != nil {
			return err
		}
	}
	return nil
}
