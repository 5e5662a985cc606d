package disk

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/kernosis/kernosis/diagnose/operation"
)

// calledAs returns a device's kernel name, followed by a volume's own name or an array's level.
func calledAs(h operation.Host, device string) string {
	if name := h.FS.DiskValue(device, "dm/name"); name != "" {
		return device + " (" + name + ")"
	}
	if level := h.FS.DiskValue(device, "md/level"); level != "" {
		return device + " (" + level + ")"
	}
	return device
}

// diskFact is one property of a device.
type diskFact struct{ name, value string }

// identify reads the properties of a device from sysfs, in the order of the results. It leaves out
// unknown ones.
func identify(h operation.Host, device string) []diskFact {
	value := func(files ...string) string {
		for _, file := range files {
			if s := h.FS.DiskValue(device, file); s != "" {
				return s
			}
		}
		return ""
	}
	sectors, _ := strconv.ParseUint(value("size"), 10, 53)
	serial := value("device/serial", "serial")
	if serial == "" {
		serial = scsiSerial(h, device)
	}
	all := []diskFact{
		{"kind", diskKind(h, device)},
		{"model", value("device/model", "device/name")},
		{"vendor", value("device/vendor")},
		{"serial", serial},
		{"firmware", value("device/firmware_rev", "device/rev", "device/fwrev")},
		{"wwid", value("wwid", "device/wwid")},
		{"sizeBytes", strconv.FormatUint(sectors*512, 10)},
		{"rotational", yesNo(value("queue/rotational"))},
		{"removable", yesNo(value("removable"))},
		{"readOnly", yesNo(value("ro"))},
		{"scheduler", inForce(value("queue/scheduler"))},
		{"queueRequests", value("queue/nr_requests")},
		{"queueDepth", value("device/queue_depth")},
		{"writeCache", value("queue/write_cache")},
		{"backingFile", value("loop/backing_file")},
	}
	return slices.DeleteFunc(all, func(f diskFact) bool { return f.value == "" })
}

// diskKind returns how a disk is attached, from its name and its driver.
func diskKind(h operation.Host, device string) string {
	for _, kind := range []string{"nvme", "loop", "zram", "mmc"} {
		if strings.HasPrefix(device, kind) {
			return kind
		}
	}
	switch {
	case h.FS.DiskValue(device, "dm/name") != "":
		return "dm"
	case h.FS.DiskValue(device, "md/level") != "":
		return "md"
	}
	target, err := os.Readlink(h.FS.Path("/sys/class/block/" + strings.ReplaceAll(device, "/", "!") + "/device/subsystem"))
	if err != nil {
		return ""
	}
	return target[strings.LastIndexByte(target, '/')+1:]
}

// scsiSerial reads the serial number of a SCSI or SATA disk from its vital product
// data, page 0x80: four bytes of header, then the text.
func scsiSerial(h operation.Host, device string) string {
	const header, most = 4, 256
	b, err := os.ReadFile(h.FS.Path("/sys/class/block/" + strings.ReplaceAll(device, "/", "!") + "/device/vpd_pg80"))
	if err != nil || len(b) <= header || len(b) > most || b[1] != 0x80 {
		return ""
	}
	return strings.TrimSpace(string(b[header:min(len(b), header+int(b[3]))]))
}

// inForce returns the choice in brackets: "none [mq-deadline] bfq".
func inForce(choices string) string {
	_, rest, ok := strings.Cut(choices, "[")
	if !ok {
		return choices
	}
	choice, _, _ := strings.Cut(rest, "]")
	return choice
}

// yesNo converts the 1 and 0 of sysfs to true and false.
func yesNo(s string) string {
	switch s {
	case "1":
		return "true"
	case "0":
		return "false"
	}
	return s
}
