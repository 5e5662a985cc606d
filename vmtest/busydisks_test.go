package vmtest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/vmtest/testenv"
)

// diskLoads returns reads and writes that all succeed.
func diskLoads(t *testing.T) []*load {
	t.Helper()
	disk := loopOver(t, sparseFile(t, 32<<20), 0, 0)
	makeFS(t, "ext4", disk.path())
	fs := mountFS(t, "ext4", disk.path(), "")
	buffered := openRequester(t, newFile(t, filepath.Join(fs.dir, "buffered"), 4<<20), 0)
	direct := openRequester(t, newFile(t, filepath.Join(fs.dir, "direct"), 4<<20), unix.O_DIRECT)
	ram := newNullDisk(t, "busy", 16, "memory_backed=1")
	// Half as long as a stall must last to be reported.
	slow := newNullDisk(t, "slow", 16, "irqmode=2", "completion_nsec=5000000000")
	// null_blk also times out after 5 s, so that a short stall of the machine would turn a slow
	// read into a failed one.
	if err := os.WriteFile("/sys/block/"+slow.name+"/queue/io_timeout", []byte("60000"), 0); err != nil {
		t.Fatal(err)
	}
	loads := []*load{
		{what: "synced writes to a file", pause: 100 * time.Millisecond, step: buffered.syncedWrites, proof: completed(t, disk)},
		{what: "direct writes and reads of a file", pause: 100 * time.Millisecond, step: direct.writeAndRead, proof: completed(t, disk)},
		{what: "direct writes and reads of a disk", pause: 100 * time.Millisecond, step: ram.open(unix.O_DIRECT).writeAndRead, proof: completed(t, ram.blockDevice)},
		{what: "synced writes to a disk", pause: 100 * time.Millisecond, step: ram.open(0).syncedWrites, proof: completed(t, ram.blockDevice)},
		{what: "reads that took 5 s", sleeps: true, step: slow.open(unix.O_DIRECT).slowRead, proof: completed(t, slow.blockDevice)},
	}
	return append(loads, volumeLoad(t))
}

// completed returns a function that counts the reads and writes completed by a disk from now on.
func completed(t *testing.T, d blockDevice) func() (int, error) {
	t.Helper()
	return since(t, func() (int, error) {
		const reads, writes = 0, 4
		fields := strings.Fields(attribute("/sys/block/" + d.name + "/stat"))
		if len(fields) <= writes {
			return 0, fmt.Errorf("%s has no counters", d.name)
		}
		r, err := strconv.Atoi(fields[reads])
		if err != nil {
			return 0, err
		}
		w, err := strconv.Atoi(fields[writes])
		return r + w, err
	})
}

// syncedWrites writes some blocks and syncs them.
func (r *requester) syncedWrites() (int, error) {
	const n = 8
	for i := range uint64(n) {
		if err := r.request("write", i*256, 16<<10); err != nil {
			return 0, err
		}
	}
	return n, r.f.Sync()
}

// writeAndRead writes a block and reads it back.
func (r *requester) writeAndRead() (int, error) {
	const n, sector = 32 << 10, 4096 // after what syncedWrites writes
	want := byte(time.Now().UnixNano())
	for i := range r.buf[:n] {
		r.buf[i] = want
	}
	if err := r.request("write", sector, n); err != nil {
		return 0, err
	}
	clear(r.buf[:n])
	if err := r.request("read", sector, n); err != nil {
		return 0, err
	}
	if !bytes.Equal(r.buf[:n], bytes.Repeat([]byte{want}, n)) {
		return 0, fmt.Errorf("read other bytes than %d", want)
	}
	return 2, nil
}

// slowRead does a read that is in uninterruptible sleep for a while.
func (r *requester) slowRead() (int, error) {
	start := time.Now()
	if err := r.request("read", 0, blockSize); err != nil {
		return 0, err
	}
	if took := time.Since(start); took < 4*time.Second {
		return 0, fmt.Errorf("took only %s", took)
	}
	return 1, nil
}

// volumeLoad creates a device-mapper volume, uses the filesystem on it, and removes it.
func volumeLoad(t *testing.T) *load {
	t.Helper()
	module(t, "CONFIG_BLK_DEV_DM", "dm_mod")
	const size = 16 << 20
	lower := loopOver(t, sparseFile(t, size), 0, 0)
	makeFS(t, "ext4", lower.path())
	fs := &filesystem{fsType: "ext4", dir: t.TempDir(), t: t}
	const volume = "kn-busy"
	remove := func() error { return run("dmsetup", "remove", "--noudevsync", "--retry", volume) }
	t.Cleanup(func() {
		if t.Failed() { // it may have failed between two steps
			_ = unix.Unmount(fs.dir, unix.MNT_DETACH)
			_ = remove()
		}
	})
	return &load{
		what: "volumes made, used and removed", pause: time.Second, proof: completed(t, lower),
		step: func() (int, error) {
			if err := run("dmsetup", "create", "--noudevsync", volume, "--table", linear(lower, 0, size)); err != nil {
				return 0, err
			}
			names, err := filepath.Glob("/sys/block/dm-*")
			if err != nil {
				return 0, err
			}
			for _, dir := range names {
				if attribute(filepath.Join(dir, "dm/name")) == volume {
					fs.source = "/dev/" + filepath.Base(dir)
				}
			}
			if err := fs.use(); err != nil {
				return 0, err
			}
			return 1, remove()
		},
	}
}

// use mounts the filesystem, writes to it, and unmounts it.
func (fs *filesystem) use() error {
	if err := unix.Mount(fs.source, fs.dir, fs.fsType, 0, fs.options); err != nil {
		return fmt.Errorf("mount %s: %w", fs.source, err)
	}
	if err := fs.write("used"); err != nil {
		return err
	}
	return unmount(fs.dir)
}

// unmount waits for processes that are about to stop using the filesystem: a forked process has all
// files of this one open until it executes its program.
func unmount(dir string) error {
	for end := time.Now().Add(testenv.Within(10 * time.Second)); ; time.Sleep(time.Millisecond) {
		if err := unix.Unmount(dir, 0); !errors.Is(err, unix.EBUSY) || time.Now().After(end) {
			return os.NewSyscallError("umount", err)
		}
	}
}

// run is command for goroutines other than the test's.
func run(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return nil
}
