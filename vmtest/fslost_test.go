package vmtest

import "testing"

// onMapped creates a filesystem on a volume and mounts it.
func onMapped(t *testing.T, fsType string, size int64) (*mapped, *filesystem) {
	t.Helper()
	volume := mapLinear(t, fsType, loopOver(t, sparseFile(t, size), 0, 0), 1, size)
	path := volume.devices[0].path()
	makeFS(t, fsType, path)
	return volume, mountFS(t, fsType, path, "")
}

// ext4LosesDisk makes all I/O of an ext4 fail, which aborts its journal: it becomes read-only once
// and is then lost. The errors on the way are in the kernel log.
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

// btrfsLosesDisk makes all I/O of a btrfs fail. There is no hook for its errors, so it is only
// detected as read-only in the mount table, once.
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
