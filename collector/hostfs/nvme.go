package hostfs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// NVMeHealth is an NVMe controller's SMART / health information (log page 2 of the NVM Express base
// specification). Counters above 64 bits have the maximum value.
type NVMeHealth struct {
	Warnings        []string // the active critical warnings; see [ParseNVMeHealth]
	Temperature     int      // °C
	Spare           int      // percentage of spare blocks left
	SpareThreshold  int      // percentage at which the controller warns
	Used            int      // percentage of the vendor's expected life; may exceed 100
	ReadBytes       uint64
	WrittenBytes    uint64
	PowerCycles     uint64
	PowerOnHours    uint64
	UnsafeShutdowns uint64
	MediaErrors     uint64 // data that could not be read or written correctly
	ErrorEntries    uint64 // entries of the error log, including harmless ones
}

// nvmeHealthSize is the size of the log page.
const nvmeHealthSize = 512

// ParseNVMeHealth parses the log page. The warnings are "spare", "temperature", "reliability",
// "read-only", "backup" and "persistent memory".
func ParseNVMeHealth(b []byte) (h NVMeHealth, err error) {
	if len(b) < nvmeHealthSize {
		return h, fmt.Errorf("NVMe health log of %d bytes: %w", len(b), errSyntax)
	}
	for bit, name := range []string{"spare", "temperature", "reliability", "read-only", "backup", "persistent memory"} {
		if b[0]&(1<<bit) != 0 {
			h.Warnings = append(h.Warnings, name)
		}
	}
	const kelvin = 273
	h.Temperature = int(binary.LittleEndian.Uint16(b[1:])) - kelvin
	h.Spare, h.SpareThreshold, h.Used = int(b[3]), int(b[4]), int(b[5])
	counter := func(at int) uint64 { // 128 bits
		if binary.LittleEndian.Uint64(b[at+8:]) != 0 {
			return math.MaxUint64
		}
		return binary.LittleEndian.Uint64(b[at:])
	}
	units := func(at int) uint64 { // thousands of 512 bytes
		n := counter(at)
		if n > math.MaxUint64/512_000 {
			return math.MaxUint64
		}
		return n * 512_000
	}
	h.ReadBytes, h.WrittenBytes = units(32), units(48)
	h.PowerCycles, h.PowerOnHours, h.UnsafeShutdowns = counter(112), counter(128), counter(144)
	h.MediaErrors, h.ErrorEntries = counter(160), counter(176)
	return h, nil
}

// NVMeHead converts "nvme0c1n2", a hidden path to namespace 2 of subsystem 0 through controller 1,
// into the visible disk "nvme0n2".
func NVMeHead(path string) (string, bool) {
	subsystem, namespace, ok := cutNVMePath(path)
	if !ok {
		return "", false
	}
	return "nvme" + subsystem + "n" + namespace, true
}

// IsNVMePath reports whether a disk of this name is hidden: a path of a multipath NVMe disk.
func IsNVMePath(name string) bool {
	_, _, ok := cutNVMePath(name)
	return ok
}

func cutNVMePath(path string) (subsystem, namespace string, ok bool) {
	rest, ok := strings.CutPrefix(path, "nvme")
	if !ok {
		return "", "", false
	}
	subsystem, rest, ok = strings.Cut(rest, "c")
	if !ok {
		return "", "", false
	}
	controller, namespace, ok := strings.Cut(rest, "n")
	return subsystem, namespace, ok && isDecimal(subsystem) && isDecimal(controller) && isDecimal(namespace)
}

func isDecimal(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// nvmeDisks returns the disks of an NVMe controller, given by its kernel name ("nvme0").
func (f FS) nvmeDisks(controller string) ([]string, error) {
	name, err := sysBlockName(controller)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(f.Path("/sys/class/nvme/" + name))
	if err != nil {
		return nil, err
	}
	var disks []string
	for _, e := range entries {
		disk := e.Name()
		if head, ok := NVMeHead(disk); ok {
			disk = head
		}
		if f.exists("/sys/class/block/" + disk + "/dev") {
			disks = append(disks, deviceName(disk))
		}
	}
	return disks, nil
}

// nvmeAdminCommand is struct nvme_passthru_cmd of include/uapi/linux/nvme_ioctl.h.
type nvmeAdminCommand struct {
	opcode, flags           uint8
	reserved                uint16
	nsid                    uint32
	cdw2, cdw3              uint32
	metadata, addr          uint64
	metadataLen, dataLen    uint32
	cdw10, cdw11, cdw12     uint32
	cdw13, cdw14, cdw15     uint32
	timeoutMillis, answered uint32
}

const (
	// nvmeAdminIoctl is NVME_IOCTL_ADMIN_CMD, _IOWR('N', 0x41, struct nvme_admin_cmd),
	// in the generic encoding of ioctl numbers (amd64, arm64).
	nvmeAdminIoctl = 0xc0484e41
	nvmeGetLogPage = 0x02
	nvmeHealthPage = 0x02
	// nvmeController selects the whole controller rather than one namespace.
	nvmeController = math.MaxUint32
)

// ErrNoNVMe is returned for a device that does not support NVMe commands.
var ErrNoNVMe = errors.New("not an NVMe device")

// NVMeHealth reads the health log from the controller of an NVMe disk, given by its kernel name. It
// needs CAP_SYS_ADMIN. If the controller hangs, it blocks until the driver's timeout, one minute.
func (f FS) NVMeHealth(disk string) (NVMeHealth, error) {
	name, err := sysBlockName(disk)
	if err != nil || !strings.HasPrefix(name, "nvme") {
		return NVMeHealth{}, fmt.Errorf("%s: %w", disk, ErrNoNVMe)
	}
	p := f.Path("/dev/" + name)
	fd, err := unix.Open(p, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return NVMeHealth{}, fmt.Errorf("open %s: %w", p, err)
	}
	defer func() { _ = unix.Close(fd) }() // only read
	page, err := nvmeLogPage(fd)
	if err != nil {
		return NVMeHealth{}, fmt.Errorf("read health log of %s: %w", p, err)
	}
	return ParseNVMeHealth(page)
}

func nvmeLogPage(fd int) ([]byte, error) {
	page := make([]byte, nvmeHealthSize)
	var pinned runtime.Pinner // the kernel gets its address as a number
	pinned.Pin(&page[0])
	defer pinned.Unpin()
	const dwords = nvmeHealthSize/4 - 1 // zero-based
	c := nvmeAdminCommand{
		opcode: nvmeGetLogPage, nsid: nvmeController,
		addr: uint64(uintptr(unsafe.Pointer(&page[0]))), dataLen: nvmeHealthSize,
		cdw10: dwords<<16 | nvmeHealthPage,
	}
	status, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), nvmeAdminIoctl, uintptr(unsafe.Pointer(&c)))
	switch {
	case errno == unix.ENOTTY, errno == unix.EINVAL:
		return nil, ErrNoNVMe
	case errno != 0:
		return nil, errno
	case status != 0:
		return nil, fmt.Errorf("the controller refused it with status 0x%x", status)
	}
	return page, nil
}
