package hostfs

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
)

const (
	// maxDeviceMounts bounds the mount points listed for one device: a node's disk
	// is bind-mounted into hundreds of pods.
	maxDeviceMounts = 8
	// maxMounts bounds the table; the kernel's own limit is fs.mount-max, 100,000.
	maxMounts = 100_000
	// maxShownPath bounds a path for display.
	maxShownPath = 1024
)

// Mount is one line of mountinfo. Path and Source are the kernel's own bytes: use them to open
// files, not for display.
type Mount struct {
	ID            int    // mount ID, unique among current mounts
	Major, Minor  uint32 // st_dev of its files: anonymous (0:N) for btrfs, overlay, tmpfs …
	DeviceMajor   uint32 // with DeviceMinor its block device, also for btrfs; set by a MountTable
	DeviceMinor   uint32
	Root          string // mounted directory of the filesystem: not "/" for bind mounts
	Path          string
	FSType        string
	Source        string
	Options       string // of this mount
	MountReadOnly bool   // this mount is read-only; other mounts of the filesystem may be writable
	SuperReadOnly bool   // the filesystem is read-only
	EmergencyRO   bool   // ext4 stopped writing after an error, without the read-only flag (6.15)
	Shutdown      bool   // the filesystem was shut down after an error or by request
	ErrorsPolicy  string // errors= option (ext4, FAT): continue, remount-ro or panic; empty: not shown
	SuperOptions  string // all options of the filesystem
}

// ParseMounts parses the text of mountinfo. The library handles the fields and their octal escapes.
// It fails at a line longer than bufio.Scanner allows (an overlay of hundreds of layers), so such
// lines are omitted. A table that exceeds the bounds is an error, because filesystems that are
// missing from a part of it would look unmounted.
func ParseMounts(r io.Reader) ([]Mount, error) {
	text, err := io.ReadAll(io.LimitReader(r, largeFile+1))
	if err != nil {
		return nil, err
	}
	count := 0
	infos, err := mountinfo.GetMountsFromReader(bytes.NewReader(dropLongLines(text)),
		func(*mountinfo.Info) (skip, stop bool) {
			count++
			return count > maxMounts, count > maxMounts
		})
	if len(text) > largeFile || count > maxMounts {
		return nil, fmt.Errorf("parse mountinfo: more than %d bytes or %d mounts", largeFile, maxMounts)
	}
	if err != nil {
		return nil, fmt.Errorf("parse mountinfo: %w", err)
	}
	mounts := make([]Mount, 0, len(infos))
	for _, m := range infos {
		mount := Mount{
			ID: m.ID, Major: uint32(m.Major), Minor: uint32(m.Minor),
			Root: m.Root, Path: m.Mountpoint, FSType: m.FSType, Source: m.Source,
			Options: m.Options, MountReadOnly: hasOption(m.Options, "ro"),
			SuperOptions: m.VFSOptions,
		}
		for o := range strings.SplitSeq(m.VFSOptions, ",") {
			switch {
			case o == "ro":
				mount.SuperReadOnly = true
			case o == "emergency_ro":
				mount.EmergencyRO = true
			case o == "shutdown":
				mount.Shutdown = true
			case strings.HasPrefix(o, "errors="):
				mount.ErrorsPolicy = display.Safe(strings.TrimPrefix(o, "errors="), 32)
			}
		}
		mounts = append(mounts, mount)
	}
	return mounts, nil
}

// maxMountLine is the limit of bufio.Scanner, minus the line feed.
const maxMountLine = bufio.MaxScanTokenSize - 1

// dropLongLines removes lines that are too long for the library. It usually returns b itself.
func dropLongLines(b []byte) []byte {
	tooLong := func(line []byte) bool { return len(line) > maxMountLine }
	for line := range bytes.Lines(b) {
		if tooLong(line) {
			return bytes.Join(slices.DeleteFunc(slices.Collect(bytes.Lines(b)), tooLong), nil)
		}
	}
	return b
}

func hasOption(list, option string) bool { return slices.Contains(strings.Split(list, ","), option) }

// MountTable is the mount table of one moment. It is immutable.
type MountTable struct {
	mounts   []Mount
	byDevice map[uint64][]event.Mount
}

// MountTable reads the mount table of the node's init, not that of this process, which may be in
// another mount namespace and lack some of the node's mounts.
func (f FS) MountTable() (*MountTable, error) {
	file, err := f.openMountinfo()
	if err != nil {
		return nil, err
	}
	defer file.Close()
	mounts, err := ParseMounts(file)
	if err != nil {
		return nil, err
	}
	return newMountTable(mounts, f.sourceDevice), nil
}

// OwnMounts returns the mounts of this process, whatever the node's root is.
func OwnMounts() ([]Mount, error) {
	return mountsIn("/proc/self/mountinfo")
}

func mountsIn(p string) ([]Mount, error) {
	file, err := openUnpolled(p)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return ParseMounts(file)
}

func (f FS) openMountinfo() (*os.File, error) {
	file, err := openUnpolled(f.Path("/proc/1/mountinfo"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no init in /proc (hidden by hidepid?): %w", err)
	}
	return file, err
}

// openUnpolled opens a file without adding it to the Go runtime's epoll, as os.Open does with any
// file that supports poll. Each poll of mountinfo consumes the change notification, so
// [MountWatcher] would wait forever.
func openUnpolled(p string) (*os.File, error) {
	fd, err := unix.Open(p, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: p, Err: err}
	}
	return os.NewFile(uintptr(fd), p), nil // a blocking descriptor stays out of epoll
}

// newMountTable indexes mounts. sourceDevice returns the device behind a mount whose own number is
// anonymous; if it finds none, the mount keeps its number.
func newMountTable(mounts []Mount, sourceDevice func(*Mount) (uint64, bool)) *MountTable {
	t := &MountTable{mounts: mounts, byDevice: make(map[uint64][]event.Mount)}
	sorted := make([]*Mount, len(mounts))
	for i := range mounts {
		sorted[i] = &mounts[i]
	}
	slices.SortStableFunc(sorted, func(a, b *Mount) int {
		return cmp.Or(cmp.Compare(len(a.Path), len(b.Path)), cmp.Compare(a.Path, b.Path))
	})
	for _, m := range sorted {
		m.DeviceMajor, m.DeviceMinor = m.Major, m.Minor
		dev := devKey(m.Major, m.Minor)
		if m.Major == 0 {
			var ok bool
			if dev, ok = sourceDevice(m); !ok {
				continue
			}
			m.DeviceMajor, m.DeviceMinor = uint32(dev>>32), uint32(dev)
		}
		list := t.byDevice[dev]
		shown := event.Mount{Path: display.Safe(m.Path, maxShownPath), FSType: display.Safe(m.FSType, 64)}
		if len(list) < maxDeviceMounts && !slices.Contains(list, shown) {
			t.byDevice[dev] = append(list, shown)
		}
	}
	return t
}

// sourceDevice returns the device of a filesystem that numbers its own subvolumes. It handles only
// those: any FUSE filesystem may call itself /dev/sda1.
func (f FS) sourceDevice(m *Mount) (uint64, bool) {
	if m.FSType != "btrfs" && m.FSType != "bcachefs" || !strings.HasPrefix(m.Source, "/dev/") {
		return 0, false
	}
	source := m.Source
	if m.FSType == "bcachefs" {
		source, _, _ = strings.Cut(source, ":") // it lists all its devices: use the first
	}
	var st unix.Stat_t
	if err := unix.Stat(f.Path(source), &st); err == nil && st.Mode&unix.S_IFMT == unix.S_IFBLK {
		return devKey(unix.Major(st.Rdev), unix.Minor(st.Rdev)), true
	}
	// The kernel's own name of the device needs no /dev.
	major, minor, err := f.DeviceNumber(strings.TrimPrefix(source, "/dev/"))
	return devKey(major, minor), err == nil
}

// Mounts returns all mounts in the kernel's order. The slice belongs to the table.
func (t *MountTable) Mounts() []Mount {
	if t == nil {
		return nil
	}
	return t.mounts
}

// At returns the mount points of a block device, shortest path first, at most eight, safe for
// display. The slice belongs to the table.
func (t *MountTable) At(major, minor uint32) []event.Mount {
	if t == nil {
		return nil
	}
	return t.byDevice[devKey(major, minor)]
}

func devKey(major, minor uint32) uint64 { return uint64(major)<<32 | uint64(minor) }
