package kernel

import (
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// fakeModules creates a kernel's modules, indexed by the real depmod.
func fakeModules(t *testing.T) Image {
	t.Helper()
	depmod, err := FindProgram("depmod")
	if err != nil {
		t.Skip(err)
	}
	if _, err := FindProgram("modprobe"); err != nil {
		t.Skip(err)
	}
	const release = "7.2.13+deb14-amd64"
	// A path that looks like the folder of modules and contains a space.
	root := filepath.Join(t.TempDir(), "modules/"+release+"/a cache")
	dir := filepath.Join(root, "lib/modules", release)
	for path, content := range map[string]string{
		"crypto/crc32c_generic.ko": module("crc32c_generic", nil, nil, "alias=crc32c"),
		"lib/xor.ko":               module("xor", []string{"xor_blocks"}, nil),
		"lib/raid6/raid6_pq.ko":    module("raid6_pq", []string{"raid6_call"}, []string{"xor_blocks"}),
		"fs/btrfs/btrfs.ko":        module("btrfs", nil, []string{"raid6_call", "xor_blocks"}, "softdep=pre: crc32c"),
		"net/nft_ct.ko":            module("nft_ct", nil, nil),
	} {
		write(t, filepath.Join(dir, "kernel", path), content)
	}
	write(t, filepath.Join(dir, "modules.builtin"), "kernel/drivers/block/loop.ko\nkernel/fs/ext4/ext4.ko\n")
	write(t, filepath.Join(dir, "modules.order"), "")
	if out, err := exec.Command(depmod, "-b", root, release).CombinedOutput(); err != nil {
		t.Fatalf("depmod: %v: %s", err, out)
	}
	return Image{Name: "newest", Release: release, ModulesDir: dir}
}

func TestModules(t *testing.T) {
	image := fakeModules(t)
	wrap(t, "modprobe", `case "$*" in "-C /dev/null "*) exec $real "$@";; esac; echo reads the modprobe.d of this machine >&2; exit 1`)
	const ct, pq, xor = "kernel/net/nft_ct.ko", "kernel/lib/raid6/raid6_pq.ko", "kernel/lib/xor.ko"
	const btrfs, crc = "kernel/fs/btrfs/btrfs.ko", "kernel/crypto/crc32c_generic.ko"
	for name, test := range map[string]struct{ names, files, missing []string }{
		"none":       {},
		"built in":   {names: []string{"ext4", "loop"}},
		"missing":    {names: []string{"xfs", "nft_ct", "no_such", "-x"}, files: []string{ct}, missing: []string{"xfs", "no_such", "-x"}},
		"dash":       {names: []string{"nft-ct"}, files: []string{ct}},
		"once":       {names: []string{"nft_ct", "nft-ct"}, files: []string{ct}},
		"dependency": {names: []string{"raid6_pq"}, files: []string{xor, pq}},
		"in order":   {names: []string{"xor", "nft_ct", "raid6_pq"}, files: []string{xor, ct, pq}},
		"soft":       {names: []string{"btrfs"}, files: []string{crc, xor, pq, btrfs}},
		"alias":      {names: []string{"crc32c"}, files: []string{crc}},
	} {
		t.Run(name, func(t *testing.T) {
			files, missing, err := image.Modules(test.names)
			if err != nil || !slices.Equal(missing, test.missing) {
				t.Fatalf("missing %v, error %v, want %v", missing, err, test.missing)
			}
			if name == "soft" { // soft dependencies may come before or after hard ones
				slices.Sort(files[:len(files)-1])
				slices.Sort(test.files[:len(test.files)-1])
			}
			if !slices.Equal(files, test.files) {
				t.Errorf("files %v, want %v", files, test.files)
			}
		})
	}
}

func TestModulesErrors(t *testing.T) {
	image := fakeModules(t)
	gone := image
	gone.ModulesDir += "x"
	_, _, err := gone.Modules([]string{"xor"})
	wantSetupError(t, err, "kernel newest is corrupt", fetchCommand)
	wrap(t, "modprobe", "echo install /bin/true\n")
	if _, _, err := image.Modules([]string{"xor"}); err == nil || !strings.Contains(err.Error(), `modules of kernel newest: xor: modprobe says "install /bin/true"`) {
		t.Errorf("error is %v", err)
	}
	wrap(t, "modprobe", "echo insmod /elsewhere/xor.ko\n")
	if _, _, err := image.Modules([]string{"xor"}); err == nil || !strings.Contains(err.Error(), "not below modules/"+image.Release) {
		t.Errorf("error is %v", err)
	}
	wrap(t, "modprobe", "echo something else >&2; exit 1\n")
	_, _, err = image.Modules([]string{"xor"})
	if err == nil || !strings.Contains(err.Error(), "modules of kernel newest: modprobe: something else") {
		t.Errorf("error is %v", err)
	}
	if _, ok := errors.AsType[*SetupError](err); ok {
		t.Error("nothing is missing")
	}
}
