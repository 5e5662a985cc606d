package vmtest

import "testing"

// onMapped makes a filesystem on a volume and mounts it.
func onMapped(t *testing.T, fsType string, size int64) (*mapped, *filesystem) {
	t.Helper()
	volume := mapLinear(t, fsType, loopOver(t, sparseFile(t, size), 0, 0), 1, size)
	path := volume.devices[0].path()
	makeFS(t, fsType, path)
	return volume, mountFS(t, fsType, path, "")
}

// ext4LosesDisk has all I/O of an ext4 fail, which aborts its journal: it turns
// read-only once, and is lost then. The messages on the way are in the kernel's log.
func (l *fsLab) ext4LosesDisk(t *testing.T) *fsFault {
	t.Helper()
	module(t, "CONFIG_EXT4_FS", "ext4")
	volume, fs := onMapped(t, "ext4", ext4Bytes)
	f := &fsFault{fs: fs, reasons: []string{"superblock-ro", "emergency-ro", "error-policy"}}
	log := fs.logErrors()
	l.awaitMounts(t)
	w := fs.writer()
	volume.fail()
	fs.refusesWrites(w)
	l.refuses(t, f, fs.unmount)
	t.Logf("reported on the way: %v", f.logged(log))
	return f
}

// btrfsLosesDisk has all I/O of a btrfs fail: it has no hook for errors, and is
// found read-only in the mount table, once.
func (l *fsLab) btrfsLosesDisk(t *testing.T) *fsFault {
	t.Helper()
	module(t, "CONFIG_BTRFS_FS", "btrfs")
	volume, fs := onMapped(t, "btrfs", 256<<20)
	f := &fsFault{fs: fs, reasons: []string{"superblock-ro"}}
	l.awaitMounts(t)
	w := fs.writer()
	volume.fail()
	fs.refusesWrites(w)
	l.refuses(t, f, fs.unmount)
	return f
}
