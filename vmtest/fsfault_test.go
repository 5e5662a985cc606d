package vmtest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/vmtest/agenttest"
)

const ext4Bytes = 8 << 20

// newExt4 creates and mounts an ext4 filesystem.
func newExt4(t *testing.T, options string) *filesystem {
	t.Helper()
	module(t, "CONFIG_EXT4_FS", "ext4")
	disk := loopOver(t, sparseFile(t, ext4Bytes), 0, 0)
	makeFS(t, "ext4", disk.path())
	return mountFS(t, "ext4", disk.path(), options)
}

// triggerError makes ext4 report an error.
func (fs *filesystem) triggerError() {
	fs.t.Helper()
	writeAttribute(fs.t, "/sys/fs/ext4/"+filepath.Base(fs.source)+"/trigger_fs_error", "vmtest")
}

const triggeredIn = "trigger_test_error"

// ext4Errors makes an ext4 report errors after which it continues.
func (l *fsLab) ext4Errors(t *testing.T, n int) *fsFault {
	t.Helper()
	f := &fsFault{fs: newExt4(t, "errors=continue"), errors: n, function: triggeredIn}
	l.awaitMounts(t)
	for range n {
		f.fs.triggerError()
	}
	if err := f.fs.write("after"); err != nil {
		t.Error(err)
	}
	return f
}

// ext4TurnsReadOnly makes an ext4 report errors, the first of which makes it read-only. It does
// this once, because 23 times would need as many mounts. After a repair it works again.
func (l *fsLab) ext4TurnsReadOnly(t *testing.T) *fsFault {
	t.Helper()
	f := &fsFault{
		fs:      newExt4(t, "errors=remount-ro"),
		reasons: []string{"superblock-ro", "emergency-ro", "error-policy"},
	}
	log := f.fs.logErrors()
	l.awaitMounts(t)
	w := f.fs.writer()
	for range faults {
		f.fs.triggerError()
	}
	f.fs.refusesWrites(w)
	triggered := 0
	for _, place := range f.logged(log) {
		if strings.HasPrefix(place, triggeredIn+":") {
			triggered++
		}
	}
	// 6.12 ignores all errors after the first.
	if triggered != faults && triggered != 1 {
		t.Errorf("the kernel logged %d errors of %d", triggered, faults)
	}
	l.refuses(t, f, f.fs.unmount)
	command(t, "sh", "-c", "e2fsck -fy "+f.fs.source+" || test $? -eq 1") // 1: corrected
	f.fs.mount()
	if err := f.fs.write("repaired"); err != nil {
		t.Error(err)
	}
	l.awaitMounts(t)
	return f
}

// logErrors opens the kernel log and lets the ext4 log each error from now on.
func (fs *filesystem) logErrors() kernelLog {
	fs.t.Helper()
	writeAttribute(fs.t, "/sys/fs/ext4/"+filepath.Base(fs.source)+"/err_ratelimit_interval_ms", "0")
	return openKernelLog(fs.t)
}

// logged reads the errors that must be reported from the kernel log, and returns them. An error is
// "EXT4-fs error (device dm-0): function:line: comm …"; one that says "in" is a consequence of
// another and passes no tracepoint.
func (f *fsFault) logged(log kernelLog) []string {
	head := "EXT4-fs error (device " + f.device() + "): "
	for _, record := range log.matching(head) {
		// An aborted journal passes the tracepoint since v5.11 (014c9caa29d3).
		if strings.Contains(record, "Detected aborted journal") && kernelHas(f.fs.t, "__ext4_abort") {
			continue
		}
		_, text, _ := strings.Cut(record, head)
		parts := strings.SplitN(text, ":", 3)
		f.places = append(f.places, strings.Join(parts[:2], ":"))
	}
	f.errors = len(f.places)
	return f.places
}

func victimName(i int) string { return fmt.Sprintf("kn-victim-%02d", i) }

// ext4Corrupt makes an ext4 look up files whose directory entries have invalid inode numbers.
func (l *fsLab) ext4Corrupt(t *testing.T) *fsFault {
	t.Helper()
	f := &fsFault{fs: newExt4(t, "errors=continue"), errors: faults, function: "ext4_search_dir"}
	for i := range faults {
		if err := os.WriteFile(filepath.Join(f.fs.dir, victimName(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f.fs.unmount()
	f.fs.corrupt(func(image []byte) {
		for i := range faults {
			name := []byte(victimName(i))
			found := 0
			// In the directory, and possibly in the journal.
			for at := bytes.Index(image, name); at >= 0; found++ {
				binary.LittleEndian.PutUint32(image[at-8:], 1<<30) // the inode in struct ext4_dir_entry_2
				next := bytes.Index(image[at+1:], name)
				if next < 0 {
					break
				}
				at += 1 + next
			}
			if found == 0 {
				t.Errorf("the image has no %s", name)
			}
		}
	})
	f.fs.mount()
	l.awaitMounts(t)
	for i := range faults {
		// Kernels differ in the error they return.
		if _, err := os.Lstat(filepath.Join(f.fs.dir, victimName(i))); err == nil {
			t.Error("a file is found whose inode there is not")
		}
	}
	return f
}

// corrupt changes a small unmounted filesystem.
func (fs *filesystem) corrupt(change func(image []byte)) {
	fs.t.Helper()
	disk, err := os.OpenFile(fs.source, os.O_RDWR, 0)
	if err != nil {
		fs.t.Fatal(err)
	}
	defer disk.Close()
	image := make([]byte, ext4Bytes)
	if _, err := disk.ReadAt(image, 0); err != nil {
		fs.t.Fatal(err)
	}
	change(image)
	if _, err := disk.WriteAt(image, 0); err != nil {
		fs.t.Fatal(err)
	}
	if err := disk.Sync(); err != nil {
		fs.t.Fatal(err)
	}
}

// writer opens a file for writes that need no reads from the disk.
func (fs *filesystem) writer() *os.File {
	fs.t.Helper()
	f, err := os.Create(filepath.Join(fs.dir, "open"))
	if err != nil {
		fs.t.Fatal(err)
	}
	return f
}

// refusesWrites extends an open file until that fails, and closes it: without data, this writes
// only to the journal, so the failure of the journal is reached without many other errors.
func (fs *filesystem) refusesWrites(f *os.File) {
	fs.t.Helper()
	defer f.Close()
	size := int64(0)
	var last error
	if !eventually(fs.t, "a refused write", 30*time.Second, func() bool {
		size += blockSize
		last = f.Truncate(size)
		// EIO if ext4 stops writing without becoming read-only (6.1, 6.12).
		if errors.Is(last, unix.EROFS) || errors.Is(last, unix.EIO) {
			return true
		}
		_ = f.Sync() // fails while the journal is being aborted
		return false
	}) {
		fs.t.Fatal(last)
	}
}

// kernelHas reports whether the kernel or a loaded module has a symbol.
func kernelHas(t *testing.T, symbol string) bool {
	t.Helper()
	text, err := os.ReadFile("/proc/kallsyms")
	if err != nil {
		t.Fatal(err)
	}
	// "ffffffffc04463c0 t name\t[module]"
	return bytes.Contains(text, []byte(" "+symbol+"\n")) || bytes.Contains(text, []byte(" "+symbol+"\t"))
}

// xfsShutdowns makes an xfs shut down, and mounts it again each time.
func (l *fsLab) xfsShutdowns(t *testing.T) *fsFault {
	t.Helper()
	module(t, "CONFIG_XFS_FS", "xfs")
	image := sparseFile(t, xfsMiB<<20)
	makeFS(t, "xfs", image)
	l.awaitXFS(t, image)
	f := &fsFault{
		fs:     mountFS(t, "xfs", loopOver(t, image, 0, 0).path(), ""),
		errors: faults, function: "xfs_fsops.c", reasons: []string{"shutdown"},
	}
	if !kernelHas(t, "__tracepoint_xfs_force_shutdown") {
		f.function, f.placeless = "shutdown", true
	}
	for i := range faults {
		if i > 0 {
			f.fs.mount()
		}
		l.awaitMounts(t)
		f.fs.shutDown()
		l.refuses(t, f, f.fs.unmount)
	}
	return f
}

// awaitXFS waits until the agent detects shutdowns, using another device with the same filesystem:
// the agent checks every ten seconds for loaded modules.
func (l *fsLab) awaitXFS(t *testing.T, image string) {
	t.Helper()
	fs := mountFS(t, "xfs", loopOver(t, image, 0, 0).path(), "")
	eventually(t, "a shutdown", 60*time.Second, func() bool {
		if !fs.mounted() {
			fs.mount()
		}
		fs.shutDown()
		fs.unmount()
		for _, ev := range agenttest.Events(l.agent.Entries(), event.FSError) {
			if ev.FSError.FSType == "xfs" {
				return true
			}
		}
		return false
	})
}

// shutDown stops all I/O of a filesystem, like its own reaction to an error.
func (fs *filesystem) shutDown() {
	fs.t.Helper()
	dir, err := os.Open(fs.dir)
	if err != nil {
		fs.t.Fatal(err)
	}
	defer dir.Close()
	const goingDown = 0x8004587d // XFS_IOC_GOINGDOWN
	noLogFlush := uint32(2)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, dir.Fd(), goingDown, uintptr(unsafe.Pointer(&noLogFlush))); errno != 0 {
		fs.t.Fatal(errno)
	}
}
