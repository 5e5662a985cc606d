package kernel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// unpack creates an image from a kernel's packages in a new folder. It keeps only what a machine
// needs: the kernel, its configuration and its modules.
func (s suite) unpack(ctx context.Context, k Kernel, records []record, debs []string, dir string) error {
	root := filepath.Join(dir, "unpacked")
	if err := s.extract(ctx, debs, root); err != nil {
		return err
	}
	part, _ := imagePart(records)
	m := manifest{Name: k.Name, Suite: k.Suite, Package: k.Package, Version: part.version}
	for _, r := range records {
		m.Packages = append(m.Packages, manifestPackage{Name: r.name, Version: r.version, SHA256: r.sha256})
	}
	if err := m.arrange(root, dir); err != nil {
		return err
	}
	err := errors.Join(os.RemoveAll(root), os.Mkdir(filepath.Join(dir, "usr"), 0o755), os.Symlink("../lib", filepath.Join(dir, "usr/lib")))
	if err != nil {
		return err
	}
	// Debian's packages contain no module indexes: depmod runs at installation.
	c := command{name: "depmod", args: []string{"-b", dir, m.Release}, keep: []*os.File{s.lock}}
	if _, err := c.run(ctx); err != nil {
		return err
	}
	raw, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, manifestFile), append(raw, '\n'), 0o644)
}

func (s suite) extract(ctx context.Context, debs []string, root string) error {
	for _, deb := range debs {
		c := command{name: "dpkg-deb", args: []string{"-x", deb, root}, keep: []*os.File{s.lock}}
		if _, err := c.run(ctx); err != nil {
			return err
		}
	}
	return nil
}

// arrange moves an image's files from their paths in the packages, which differ between Debian
// releases, and records their hashes.
func (m *manifest) arrange(root, dir string) error {
	modules, err := only(root, "lib/modules/*", "usr/lib/modules/*")
	if err != nil {
		return err
	}
	m.Release = filepath.Base(modules)
	if !matches(label(m.Name), m.Release) {
		return fmt.Errorf("kernel %s is a %s", m.Name, m.Release)
	}
	for _, f := range []struct {
		name string
		from []string
		sum  *string
	}{
		{vmlinuzFile, []string{"boot/vmlinuz-" + m.Release, "*/modules/*/vmlinuz", "usr/lib/modules/*/vmlinuz"}, &m.Vmlinuz},
		{configFile, []string{"boot/config-" + m.Release, "*/modules/*/config", "usr/lib/modules/*/config"}, &m.Config},
	} {
		path, err := only(root, f.from...)
		if err != nil {
			return err
		}
		if *f.sum, err = sum(path); err != nil {
			return err
		}
		if err := os.Rename(path, filepath.Join(dir, f.name)); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "lib/modules"), 0o755); err != nil {
		return err
	}
	return os.Rename(modules, filepath.Join(dir, "lib/modules", m.Release))
}

// only returns the single file below root that matches the patterns.
func only(root string, patterns ...string) (string, error) {
	var found []string
	for _, p := range patterns {
		match, err := filepath.Glob(filepath.Join(root, p))
		if err != nil {
			return "", err
		}
		found = append(found, match...)
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return "", fmt.Errorf("the packages have no %s", patterns[0])
	default:
		return "", errors.New("the packages have both " + found[0] + " and " + found[1])
	}
}

// rootDir is the folder of an image that contains the programs named in vm.yaml, if its
// architecture is not this machine's. They never run here.
const rootDir = "root"

// fetchUserland unpacks these programs and their dependencies below dir if they are needed.
func (s suite) fetchUserland(ctx context.Context, dir string) (err error) {
	if s.arch == runtime.GOARCH {
		return nil
	}
	// apt verifies the packages against the signed index.
	defer func() { err = errors.Join(err, os.RemoveAll(s.path("archives"))) }()
	if _, err := s.apt(ctx, "", "apt-get", "-o", "Debug::NoLocking=1", "--download-only", "--yes", "--no-install-recommends", "install",
		"btrfs-progs", "coreutils", "dash", "dmsetup", "e2fsprogs", "kmod", "mount", "nftables", "util-linux", "xfsprogs"); err != nil {
		return s.explain(err)
	}
	debs, err := filepath.Glob(s.path("archives/*.deb"))
	if err != nil {
		return err
	}
	return s.extract(ctx, debs, filepath.Join(dir, rootDir))
}
