package hostfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/display"
)

// Ext4Errors is an ext4's record of errors, which is kept across mounts until e2fsck runs.
type Ext4Errors struct {
	Count       uint64
	First, Last Ext4Error
}

// Ext4Error is one such error. Fields that the kernel does not provide are zero.
type Ext4Error struct {
	Time     time.Time
	Function string // the kernel function that detected it
	Line     uint64
	Code     string // "EIO", "EFSBADCRC" …; Linux 5.6
}

// Ext4Errors reads the errors of the mounted ext4 on a device, given by its kernel name. It returns
// [fs.ErrNotExist] if no ext4 is mounted there.
func (f FS) Ext4Errors(device string) (e Ext4Errors, err error) {
	name, err := sysBlockName(device)
	if err != nil {
		return e, err
	}
	dir := "/sys/fs/ext4/" + name + "/"
	if e.Count, err = f.readUint(dir + "errors_count"); err != nil {
		return e, err
	}
	var err1, err2 error
	e.First, err1 = f.ext4Error(dir + "first_error_")
	e.Last, err2 = f.ext4Error(dir + "last_error_")
	return e, errors.Join(err1, err2)
}

func (f FS) ext4Error(prefix string) (e Ext4Error, err error) {
	read := func(name string) uint64 {
		n, readErr := f.optional(prefix + name)
		err = errors.Join(err, readErr)
		return n
	}
	if at := read("time"); at > 0 && at < 1<<40 {
		e.Time = time.Unix(int64(at), 0).UTC()
	}
	e.Line = read("line")
	e.Code = ext4Code(read("errcode"))
	function, readErr := f.readValue(prefix + "func")
	if readErr != nil && !errors.Is(readErr, fs.ErrNotExist) {
		err = errors.Join(err, readErr)
	}
	e.Function = display.Safe(function, 64)
	return e, err
}

// ext4Code returns the name of an EXT4_ERR_* number of fs/ext4/ext4.h, as stored on disk.
func ext4Code(n uint64) string {
	names := []string{
		"", "UNKNOWN", "EIO", "ENOMEM", "EFSBADCRC", "EFSCORRUPTED", "ENOSPC", "ENOKEY", "EROFS", "EFBIG", "EEXIST",
		"ERANGE", "EOVERFLOW", "EBUSY", "ENOTDIR", "ENOTEMPTY", "ESHUTDOWN", "EFAULT",
	}
	if n < uint64(len(names)) {
		return names[n]
	}
	return "CODE_" + strconv.FormatUint(n, 10)
}

// BtrfsErrors are the error counters of a mounted btrfs, summed over its devices. They are kept
// across mounts until reset.
type BtrfsErrors struct {
	Write, Read, Flush, Corruption, Generation uint64
}

// Sum returns the sum of all counters.
func (b *BtrfsErrors) Sum() uint64 { return b.Write + b.Read + b.Flush + b.Corruption + b.Generation }

// BtrfsErrors reads the counters of the mounted btrfs that a device, given by its kernel name, is
// part of. It returns [fs.ErrNotExist] if there is none, or the kernel is older than 5.14.
func (f FS) BtrfsErrors(device string) (b BtrfsErrors, err error) {
	dir, err := f.btrfs(device)
	if err != nil {
		return b, err
	}
	members, err := os.ReadDir(f.Path(dir + "/devinfo"))
	if err != nil {
		return b, err
	}
	for _, m := range members {
		var one BtrfsErrors
		if err := f.readKeyed(dir+"/devinfo/"+m.Name()+"/error_stats", map[string]*uint64{
			"write_errs": &one.Write, "read_errs": &one.Read, "flush_errs": &one.Flush,
			"corruption_errs": &one.Corruption, "generation_errs": &one.Generation,
		}); err != nil {
			return b, err
		}
		b = BtrfsErrors{
			b.Write + one.Write, b.Read + one.Read, b.Flush + one.Flush,
			b.Corruption + one.Corruption, b.Generation + one.Generation,
		}
	}
	return b, nil
}

// BtrfsDevices returns the kernel names of all devices of the mounted btrfs that a device is part
// of. It returns [fs.ErrNotExist] if there is none.
func (f FS) BtrfsDevices(device string) (devices []string, err error) {
	dir, err := f.btrfs(device)
	if err != nil {
		return nil, err
	}
	return f.devices(dir + "/devices")
}

// btrfs returns the sysfs directory of the mounted btrfs that a device is part of.
func (f FS) btrfs(device string) (string, error) {
	name, err := sysBlockName(device)
	if err != nil {
		return "", err
	}
	entries, err := os.ReadDir(f.Path("/sys/fs/btrfs"))
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		if dir := "/sys/fs/btrfs/" + e.Name(); f.exists(dir + "/devices/" + name) {
			return dir, nil
		}
	}
	return "", fmt.Errorf("no btrfs on %s: %w", device, fs.ErrNotExist)
}

// String lists the counters that are not 0: "write 3, flush 1".
func (b *BtrfsErrors) String() string {
	var out []string
	for _, c := range []struct {
		name string
		n    uint64
	}{{"write", b.Write}, {"read", b.Read}, {"flush", b.Flush}, {"corruption", b.Corruption}, {"generation", b.Generation}} {
		if c.n > 0 {
			out = append(out, c.name+" "+strconv.FormatUint(c.n, 10))
		}
	}
	return strings.Join(out, ", ")
}
