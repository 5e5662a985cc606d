package disk

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/diagnose/operation"
)

// smartLimit is the timeout for a controller's answer, which usually takes milliseconds.
const smartLimit = 5 * time.Second

func Smart(h operation.Host) operation.Builtin {
	return operation.Bounded(operation.Builtin{
		Name: "smart",
		Doc: "Reads the health log of an NVMe disk: warnings, spare blocks, wear, media errors, temperature. For other disks it reports that no log is " +
			"readable: virtual disks have none, and this version can't read those of SATA and SAS disks.",
		Effect:     operation.Collect,
		Parameters: diskParameters("an error"),
		Results: []operation.Result{
			{Name: "disk", Doc: "hardware below the device, the first of several"},
			{Name: "readable", Doc: "whether its health is readable"},
			{Name: "reason", Doc: "why not"},
			{Name: "warnings", Doc: "active critical warnings: spare, temperature, reliability, read-only, backup, persistent memory; missing: none"},
			{Name: "temperatureCelsius", Doc: "temperature"},
			{Name: "sparePercent", Doc: "remaining spare blocks"},
			{Name: "spareThresholdPercent", Doc: "threshold at which the controller warns"},
			{Name: "usedPercent", Doc: "share of the expected lifetime used; may exceed 100"},
			{Name: "mediaErrors", Doc: "data that was not read or written correctly"},
			{Name: "errorLogEntries", Doc: "entries of the controller's error log, including harmless ones"},
			{Name: "powerOnHours", Doc: "hours powered on"},
			{Name: "powerCycles", Doc: "power cycles"},
			{Name: "unsafeShutdowns", Doc: "power losses without notice"},
			{Name: "readBytes", Doc: "bytes read in its lifetime"},
			{Name: "writtenBytes", Doc: "bytes written in its lifetime"},
			operation.NoteResult(),
		},
		Run: host{h, operation.NewPatience()}.smart,
	})
}

func (h host) smart(ctx context.Context, call *operation.Call) (operation.Output, error) {
	device, disks, err := h.namedHardware(call.Parameters)
	if err != nil {
		return operation.Output{}, err
	}
	f := operation.NewFinding()
	if len(disks) > 1 {
		f.Note("%s is on %d disks; these are results of the first", device, len(disks))
	}
	disk := disks[0]
	f.Text("disk", disk)
	health, err := h.health(ctx, disk)
	f.Bool("readable", err == nil)
	if err != nil {
		f.Text("reason", err.Error())
		return f.Output(nil), nil
	}
	reportNvme(f, &health)
	return f.Output(nil), nil
}

// health reads the health log of a disk. The error says in plain words why it can't be read.
func (h host) health(ctx context.Context, disk string) (hostfs.NVMeHealth, error) {
	health, err := operation.Look(ctx, h.patient, smartLimit, func() (hostfs.NVMeHealth, error) { return h.FS.NVMeHealth(disk) })
	if !errors.Is(err, hostfs.ErrNoNVMe) {
		return health, err
	}
	kind := h.diskKind(disk)
	switch kind {
	case "scsi":
		return health, errors.New("not readable: this version can't read SMART data of SATA and SAS disks")
	case "":
		kind = "unknown"
	}
	return health, fmt.Errorf("not readable: a disk of kind %s has no health log", kind)
}

func reportNvme(f *operation.Finding, n *hostfs.NVMeHealth) {
	f.Text("warnings", strings.Join(n.Warnings, " "))
	f.Int("temperatureCelsius", int64(n.Temperature))
	f.Int("sparePercent", int64(n.Spare))
	f.Int("spareThresholdPercent", int64(n.SpareThreshold))
	f.Int("usedPercent", int64(n.Used))
	for name, count := range map[string]uint64{
		"mediaErrors": n.MediaErrors, "errorLogEntries": n.ErrorEntries, "powerOnHours": n.PowerOnHours, "powerCycles": n.PowerCycles,
		"unsafeShutdowns": n.UnsafeShutdowns, "readBytes": n.ReadBytes, "writtenBytes": n.WrittenBytes,
	} {
		text := strconv.FormatUint(count, 10)
		if count == math.MaxUint64 {
			text = "more than " + text
		}
		f.Text(name, text)
	}
}
