package disk

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/kernosis/kernosis/diagnose/operation"
)

func DiskIdentity(h operation.Host) operation.Builtin {
	return operation.Bounded(operation.Builtin{
		Name: "disk-identity",
		Doc: "Resolves a disk, partition or volume (through dm and md) to its hardware: model, serial number, firmware, size, kind, queue. Also reports " +
			"the mounts, pods and volumes on it. Artifact disks.txt has every device of the stack.",
		Effect:     operation.Collect,
		Parameters: diskParameters("an error"),
		Results: append([]operation.Result{
			{Name: "device", Doc: "the requested device"},
			{Name: "deviceNumber", Doc: "its MAJ:MIN"},
			{Name: "stack", Doc: "the device and what it consists of, down to the hardware: dm-0 (vg-data) > nvme1n1p1 > nvme1n1"},
			{Name: "disk", Doc: "hardware below it, the first of several; the results below describe it"},
			{Name: "disks", Doc: "all hardware below it"},
			{Name: "kind", Doc: "nvme, scsi, virtio, mmc, loop or the driver's name"},
			{Name: "model", Doc: "model"},
			{Name: "vendor", Doc: "vendor"},
			{Name: "serial", Doc: "serial number"},
			{Name: "firmware", Doc: "firmware version"},
			{Name: "wwid", Doc: "worldwide ID"},
			{Name: "sizeBytes", Doc: "size"},
			{Name: "rotational", Doc: "whether it reports itself as rotational; virtual disks often do"},
			{Name: "removable", Doc: "whether its medium is removable"},
			{Name: "readOnly", Doc: "whether it refuses writes"},
			{Name: "scheduler", Doc: "active I/O scheduler"},
			{Name: "queueRequests", Doc: "requests that fit into a queue"},
			{Name: "queueDepth", Doc: "commands the disk accepts at once (SCSI)"},
			{Name: "writeCache", Doc: "write back or write through"},
			{Name: "backingFile", Doc: "file behind a loop device"},
			operation.NoteResult(),
		}, UserResults()...),
		Run: host{Host: h}.diskIdentity,
	})
}

func (h host) diskIdentity(_ context.Context, call *operation.Call) (operation.Output, error) {
	device, disks, err := h.namedHardware(call.Parameters)
	if err != nil {
		return operation.Output{}, err
	}
	stack, err := h.FS.Below(device)
	if err != nil {
		return operation.Output{}, fmt.Errorf("find device %q: %w", device, err)
	}
	f := operation.NewFinding()
	f.Text("device", device)
	if major, minor, err := h.FS.DeviceNumber(device); err == nil {
		f.Text("deviceNumber", fmt.Sprintf("%d:%d", major, minor))
	}
	names := make([]string, len(stack))
	for i, name := range stack {
		names[i] = h.calledAs(name)
	}
	f.Text("stack", strings.Join(names, " > "))
	f.Text("disks", strings.Join(disks, " "))
	if len(disks) > 0 {
		f.Text("disk", disks[0])
		for _, fact := range h.identify(disks[0]) {
			f.Text(fact.name, fact.value)
		}
	}
	table, err := h.FS.MountTable()
	if err != nil {
		f.Note("can't determine the mounts on it: %v", err)
	}
	// Other users of the same hardware fail with it.
	users := UsersOf(h.Host, table, append([]string{device}, disks...)...)
	ReportUsers(f, &users)
	err = f.Artifact(call, "disks.txt", func(w *operation.Page) {
		for _, name := range stack {
			w.Printf("%s", h.calledAs(name))
			for _, fact := range h.identify(name) {
				w.Printf(" %s=%q", fact.name, fact.value)
			}
			w.Printf("\n")
		}
		for _, m := range users.mounts {
			w.Printf("mount %s\n", m)
		}
	})
	return f.Output(nil), err
}

// calledAs returns a device's kernel name, followed by a volume's own name or an array's level.
func (h host) calledAs(device string) string {
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
func (h host) identify(device string) []diskFact {
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
		serial = h.scsiSerial(device)
	}
	all := []diskFact{
		{"kind", h.diskKind(device)},
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
func (h host) diskKind(device string) string {
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
func (h host) scsiSerial(device string) string {
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
	return cmp.Or(map[string]string{"1": "true", "0": "false"}[s], s)
}
