package disk

import (
	"context"
	"fmt"
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
		Run: func(_ context.Context, call *operation.Call) (operation.Output, error) { return diskIdentity(h, call) },
	})
}

func diskIdentity(h operation.Host, call *operation.Call) (operation.Output, error) {
	device, disks, err := namedHardware(h, call.Parameters)
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
		names[i] = calledAs(h, name)
	}
	f.Text("stack", strings.Join(names, " > "))
	f.Text("disks", strings.Join(disks, " "))
	if len(disks) > 0 {
		f.Text("disk", disks[0])
		for _, fact := range identify(h, disks[0]) {
			f.Text(fact.name, fact.value)
		}
	}
	table, err := h.FS.MountTable()
	if err != nil {
		f.Note("can't determine the mounts on it: %v", err)
	}
	// Other users of the same hardware fail with it.
	users := UsersOf(h, table, append([]string{device}, disks...)...)
	ReportUsers(f, &users)
	err = f.Artifact(call, "disks.txt", func(w *operation.Page) {
		for _, name := range stack {
			w.Printf("%s", calledAs(h, name))
			for _, fact := range identify(h, name) {
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
