package operation

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/hostfs"
)

// smartLimit is how long a controller may take to answer: it takes milliseconds.
const smartLimit = 5 * time.Second

// Smart returns the built-in smart.
func Smart(h Host) Builtin {
	patient := newPatience()
	return bounded(Builtin{
		Name: "smart",
		Doc: "Reads the health log of an NVMe disk: warnings, spare blocks, wear, media errors, temperature. Of other disks it says that none can be read: " +
			"virtual disks have none, and that of SATA and SAS disks is not read by this version.",
		Effect:     Collect,
		Parameters: diskParameters("an error"),
		Results: []Result{
			{"disk", "the hardware below the device, the first of several"},
			{"readable", "whether its health can be read"},
			{"reason", "why not"},
			{"warnings", "critical warnings that are on: spare, temperature, reliability, read-only, backup, persistent memory; missing: none"},
			{"temperatureCelsius", "temperature"},
			{"sparePercent", "spare blocks that are left"},
			{"spareThresholdPercent", "at which the controller warns"},
			{"usedPercent", "share of the life that the maker expects; may exceed 100"},
			{"mediaErrors", "data that could not be read or written rightly"},
			{"errorLogEntries", "entries of the controller's error log, harmless ones too"},
			{"powerOnHours", "hours that it was on"},
			{"powerCycles", "times that it was switched on"},
			{"unsafeShutdowns", "times that it lost power without notice"},
			{"readBytes", "read from it in its life"},
			{"writtenBytes", "written to it in its life"},
			noteResult(),
		},
		Run: func(ctx context.Context, call *Call) (Output, error) { return h.smart(ctx, patient, call) },
	})
}

func (h Host) smart(ctx context.Context, patient patience, call *Call) (Output, error) {
	device, err := h.diskOf(call.Parameters)
	switch {
	case err != nil:
		return Output{}, err
	case device == "":
		return Output{}, errors.New("parameter device, deviceNumber or mountPoint is required")
	}
	disks, err := h.hardware(device)
	if err != nil {
		return Output{}, err
	}
	f := newFinding()
	if len(disks) > 1 {
		f.note("%s is on %d disks; this is of the first", device, len(disks))
	}
	disk := disks[0]
	f.text("disk", disk)
	health, err := h.health(ctx, patient, disk)
	if ctx.Err() != nil {
		return Output{}, context.Cause(ctx)
	}
	f.bool("readable", err == nil)
	if err != nil {
		f.text("reason", err.Error())
		return f.output(nil), nil
	}
	f.nvme(&health)
	return f.output(nil), nil
}

// health asks a disk for its health. The error says plainly why it can't be had.
func (h Host) health(ctx context.Context, patient patience, disk string) (hostfs.NVMeHealth, error) {
	health, err := look(ctx, patient, smartLimit, func() (hostfs.NVMeHealth, error) { return h.FS.NVMeHealth(disk) })
	if !errors.Is(err, hostfs.ErrNoNVMe) {
		return health, err
	}
	kind := h.diskKind(disk)
	switch kind {
	case "scsi":
		return health, errors.New("not readable: SMART of SATA and SAS disks is not read by this version")
	case "":
		kind = "unknown"
	}
	return health, fmt.Errorf("not readable: a disk of kind %s has no health log", kind)
}

func (f *finding) nvme(n *hostfs.NVMeHealth) {
	f.text("warnings", strings.Join(n.Warnings, " "))
	f.int("temperatureCelsius", int64(n.Temperature))
	f.int("sparePercent", int64(n.Spare))
	f.int("spareThresholdPercent", int64(n.SpareThreshold))
	f.int("usedPercent", int64(n.Used))
	for name, count := range map[string]uint64{
		"mediaErrors": n.MediaErrors, "errorLogEntries": n.ErrorEntries, "powerOnHours": n.PowerOnHours, "powerCycles": n.PowerCycles,
		"unsafeShutdowns": n.UnsafeShutdowns, "readBytes": n.ReadBytes, "writtenBytes": n.WrittenBytes,
	} {
		text := strconv.FormatUint(count, 10)
		if count == math.MaxUint64 {
			text = "more than " + text
		}
		f.text(name, text)
	}
}
