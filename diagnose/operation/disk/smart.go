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

// smartLimit is how long a controller may take to answer: it takes milliseconds.
const smartLimit = 5 * time.Second

// Smart returns the built-in smart.
func Smart(h operation.Host) operation.Builtin {
	patient := operation.NewPatience()
	return operation.Bounded(operation.Builtin{
		Name: "smart",
		Doc: "Reads the health log of an NVMe disk: warnings, spare blocks, wear, media errors, temperature. Of other disks it says that none can be read: " +
			"virtual disks have none, and that of SATA and SAS disks is not read by this version.",
		Effect:     operation.Collect,
		Parameters: diskParameters("an error"),
		Results: []operation.Result{
			{Name: "disk", Doc: "the hardware below the device, the first of several"},
			{Name: "readable", Doc: "whether its health can be read"},
			{Name: "reason", Doc: "why not"},
			{Name: "warnings", Doc: "critical warnings that are on: spare, temperature, reliability, read-only, backup, persistent memory; missing: none"},
			{Name: "temperatureCelsius", Doc: "temperature"},
			{Name: "sparePercent", Doc: "spare blocks that are left"},
			{Name: "spareThresholdPercent", Doc: "at which the controller warns"},
			{Name: "usedPercent", Doc: "share of the life that the maker expects; may exceed 100"},
			{Name: "mediaErrors", Doc: "data that could not be read or written rightly"},
			{Name: "errorLogEntries", Doc: "entries of the controller's error log, harmless ones too"},
			{Name: "powerOnHours", Doc: "hours that it was on"},
			{Name: "powerCycles", Doc: "times that it was switched on"},
			{Name: "unsafeShutdowns", Doc: "times that it lost power without notice"},
			{Name: "readBytes", Doc: "read from it in its life"},
			{Name: "writtenBytes", Doc: "written to it in its life"},
			operation.NoteResult(),
		},
		Run: func(ctx context.Context, call *operation.Call) (operation.Output, error) {
			return smart(h, ctx, patient, call)
		},
	})
}

func smart(h operation.Host, ctx context.Context, patient operation.Patience, call *operation.Call) (operation.Output, error) {
	device, err := diskOf(h, call.Parameters)
	switch {
	case err != nil:
		return operation.Output{}, err
	case device == "":
		return operation.Output{}, errors.New("parameter device, deviceNumber or mountPoint is required")
	}
	disks, err := hardware(h, device)
	if err != nil {
		return operation.Output{}, err
	}
	f := operation.NewFinding()
	if len(disks) > 1 {
		f.Note("%s is on %d disks; this is of the first", device, len(disks))
	}
	disk := disks[0]
	f.Text("disk", disk)
	health, err := health(h, ctx, patient, disk)
	if ctx.Err() != nil {
		return operation.Output{}, context.Cause(ctx)
	}
	f.Bool("readable", err == nil)
	if err != nil {
		f.Text("reason", err.Error())
		return f.Output(nil), nil
	}
	reportNvme(f, &health)
	return f.Output(nil), nil
}

// health asks a disk for its health. The error says plainly why it can't be had.
func health(h operation.Host, ctx context.Context, patient operation.Patience, disk string) (hostfs.NVMeHealth, error) {
	health, err := operation.Look(ctx, patient, smartLimit, func() (hostfs.NVMeHealth, error) { return h.FS.NVMeHealth(disk) })
	if !errors.Is(err, hostfs.ErrNoNVMe) {
		return health, err
	}
	kind := diskKind(h, disk)
	switch kind {
	case "scsi":
		return health, errors.New("not readable: SMART of SATA and SAS disks is not read by this version")
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
