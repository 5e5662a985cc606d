package hostfs

import (
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
)

// RemountsReadOnly reports whether the filesystem of a mount stops accepting writes after an error;
// device is its device's kernel name. mountinfo omits this option of an ext4 if it is the
// filesystem's default; /proc/fs/ext4 lists all options.
func (f FS) RemountsReadOnly(m *Mount, device string) (bool, error) {
	if m.ErrorsPolicy != "" || m.FSType != "ext4" {
		return m.ErrorsPolicy == "remount-ro", nil
	}
	name, err := sysBlockName(device)
	if err != nil {
		return false, err
	}
	text, err := f.read("/proc/fs/ext4/"+name+"/options", 8<<10) // one option per line, about 40 lines
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) == "errors=remount-ro" {
			return true, nil
		}
	}
	return false, nil
}

// On-disk offsets in struct ext4_super_block of fs/ext4/ext4.h.
const (
	ext4Super   = 1024 // start of the superblock
	ext4MTime   = 0x2c // s_mtime, seconds
	ext4Magic   = 0x38 // s_magic, 0xef53
	ext4MTimeHi = 0x274
)

// Ext4MountedAt returns when the ext4 on a device, given by its kernel name, was last mounted for
// writing, in whole seconds. It reads the device.
func (f FS) Ext4MountedAt(device string) (time.Time, error) {
	if _, err := sysBlockName(device); err != nil {
		return time.Time{}, err
	}
	file, err := os.OpenFile(f.Path("/dev/"+device), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return time.Time{}, err
	}
	defer file.Close()
	var super [1024]byte
	if _, err := file.ReadAt(super[:], ext4Super); err != nil {
		return time.Time{}, fmt.Errorf("read superblock: %w", err)
	}
	if magic := binary.LittleEndian.Uint16(super[ext4Magic:]); magic != 0xef53 {
		return time.Time{}, fmt.Errorf("/dev/%s has no ext4", device)
	}
	seconds := int64(super[ext4MTimeHi])<<32 | int64(binary.LittleEndian.Uint32(super[ext4MTime:]))
	return time.Unix(seconds, 0), nil
}
