package operation

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// DiskIdentity returns the built-in disk-identity.
func DiskIdentity(h Host) Builtin {
	return bounded(Builtin{
		Name: "disk-identity",
		Doc: "Tells which hardware is below a disk, partition or volume (through dm and md): model, serial number, firmware, size, kind, queue; and which " +
			"mounts, pods and volumes are on it. disks.txt has every device of the stack.",
		Effect:     Collect,
		Parameters: diskParameters("an error"),
		Results: append([]Result{
			{"device", "the device that was asked for"},
			{"deviceNumber", "its MAJ:MIN"},
			{"stack", "it and what it is made of, down to the hardware: dm-0 (vg-data) > nvme1n1p1 > nvme1n1"},
			{"disk", "the hardware below it, the first of several; those below are of it"},
			{"disks", "all hardware below it"},
			{"kind", "nvme, scsi, virtio, mmc, loop or the driver's name"},
			{"model", "model"},
			{"vendor", "vendor"},
			{"serial", "serial number"},
			{"firmware", "firmware's version"},
			{"wwid", "worldwide id"},
			{"sizeBytes", "size"},
			{"rotational", "whether it says that it rotates; virtual disks often say so"},
			{"removable", "whether its medium can be taken out"},
			{"readOnly", "whether it takes no writes"},
			{"scheduler", "I/O scheduler in force"},
			{"queueRequests", "requests that a queue can hold"},
			{"queueDepth", "commands that the disk takes at once (SCSI)"},
			{"writeCache", "write back or write through"},
			{"backingFile", "file behind a loop device"},
			noteResult(),
		}, diskUserResults()...),
		Run: func(_ context.Context, call *Call) (Output, error) { return h.diskIdentity(call) },
	})
}

func (h Host) diskIdentity(call *Call) (Output, error) {
	device, err := h.diskOf(call.Parameters)
	if err != nil {
		return Output{}, err
	}
	if device == "" {
		return Output{}, errors.New("parameter device, deviceNumber or mountPoint is required")
	}
	stack, err := h.FS.Below(device)
	if err != nil {
		return Output{}, fmt.Errorf("look for device %q: %w", device, err)
	}
	disks, err := h.hardware(device)
	if err != nil {
		return Output{}, err
	}
	f := newFinding()
	f.text("device", device)
	if major, minor, err := h.FS.DeviceNumber(device); err == nil {
		f.text("deviceNumber", fmt.Sprintf("%d:%d", major, minor))
	}
	names := make([]string, len(stack))
	for i, name := range stack {
		names[i] = h.calledAs(name)
	}
	f.text("stack", strings.Join(names, " > "))
	f.text("disks", strings.Join(disks, " "))
	if len(disks) > 0 {
		f.text("disk", disks[0])
		f.identity(h.identify(disks[0]))
	}
	table, err := h.FS.MountTable()
	if err != nil {
		f.note("the mounts on it are not known: %v", err)
	}
	// Who else is on the same hardware fails with it.
	users := diskUsers{}
	for _, disk := range append([]string{device}, disks...) {
		u := h.usersOf(disk, table)
		for _, m := range u.mounts {
			users.addMount(m)
		}
		for i := range u.pods {
			users.pods = addOnce(users.pods, u.pods[i])
		}
		for i := range u.volumes {
			users.volumes = addOnce(users.volumes, u.volumes[i])
		}
	}
	f.users(&users)
	err = f.artifact(call, "disks.txt", func(w *page) {
		for _, name := range stack {
			w.printf("%s", h.calledAs(name))
			for _, fact := range h.identify(name) {
				w.printf(" %s=%q", fact.name, fact.value)
			}
			w.printf("\n")
		}
		for _, m := range users.mounts {
			w.printf("mount %s\n", m)
		}
	})
	return f.output(nil), err
}
