package disk

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/diagnose/operation"
)

func CheckDiskFailing(h operation.Host) operation.Builtin {
	return operation.Bounded(operation.Builtin{
		Name: "check-disk-failing",
		Doc: "Checks whether a disk shows signs of hardware failure. Verdict DiskFailing, with the evidence: the driver has given up on the device; its NVMe " +
			"health log warns about spare blocks, reliability or read-only mode, or counts media errors; or the kernel log has a medium error, or at " +
			"least minErrors failed requests. Without a device all disks are checked.",
		Effect: operation.Check,
		Parameters: append(diskParameters("any disk"),
			operation.Parameter{Name: "maxAge", Doc: "ignore older log lines", Kind: operation.Duration, Default: "1h"},
			operation.Parameter{Name: "minErrors", Doc: "failed requests in the log that count without a medium error", Kind: operation.Integer, Default: "3", Max: 1_000_000}),
		Results: append([]operation.Result{
			{Name: "disk", Doc: "the failing disk, or the worst one"},
			{Name: "device", Doc: "the same"},
			{Name: "failingDisks", Doc: "all failing disks"},
			{Name: "evidence", Doc: "signs of failure"},
			{Name: "model", Doc: "its model"},
			{Name: "serial", Doc: "its serial number"},
			{Name: "logErrors", Doc: "failed requests in the kernel log, a lower bound"},
			{Name: "logErrorKinds", Doc: "these by kind"},
			{Name: "lastLogError", Doc: "last of them"},
			operation.NoteResult(),
		}, UserResults()...),
		Run: host{h, operation.NewPatience()}.checkDiskFailing,
	})
}

// failingDisk is a disk with its signs of failure.
type failingDisk struct {
	*diskHealth
	signs  []string
	clear  []string // what was checked and is fine
	unseen []string // what could not be checked
}

func (h host) checkDiskFailing(ctx context.Context, call *operation.Call) (operation.Output, error) {
	f := operation.NewFinding()
	disks, err := h.hardwareOf(call.Parameters)
	if err != nil {
		return operation.Output{}, err
	}
	if len(disks) == 0 {
		return operation.Output{}, operation.RefutedBy("NoDiskFailing", "this node has no local disk")
	}
	logs, err := h.diskLogs(ctx, call.Parameters.Duration("maxAge"), f)
	if err != nil {
		f.Note("%v", err)
	}
	table, err := h.FS.MountTable()
	if err != nil {
		f.Note("can't determine the mounts on it: %v", err)
	}
	var failing, fine []*failingDisk
	for _, name := range disks {
		if ctx.Err() != nil {
			return operation.Output{}, context.Cause(ctx)
		}
		d := &failingDisk{diskHealth: h.readDiskHealth(name, logs, table)}
		d.judge(int(call.Parameters.Int("minErrors")), call.Parameters.Duration("maxAge"), logs != nil)
		if d.gone {
			d.unseen = append(d.unseen, "this node has no such device (any more)")
		} else if health, err := h.health(ctx, name); err != nil {
			d.unseen = append(d.unseen, "health log "+err.Error())
		} else {
			d.judgeNVMe(&health)
		}
		if len(d.signs) > 0 {
			failing = append(failing, d)
		} else {
			fine = append(fine, d)
		}
	}
	if len(failing) == 0 {
		return operation.Output{}, notFailing(fine)
	}
	slices.SortStableFunc(failing, func(a, b *failingDisk) int { return cmp.Compare(b.weight(), a.weight()) })
	worst := failing[0]
	names := make([]string, len(failing))
	for i, d := range failing {
		names[i] = d.name
	}
	f.Text("disk", worst.name)
	f.Text("device", worst.name)
	f.Text("failingDisks", strings.Join(names, " "))
	f.Text("evidence", strings.Join(worst.signs, "; "))
	var identity []string
	for _, fact := range h.identify(worst.name) {
		if fact.name == "model" || fact.name == "serial" {
			f.Text(fact.name, fact.value)
			identity = append(identity, fact.value)
		}
	}
	f.Int("logErrors", int64(worst.log.bad()))
	f.Text("logErrorKinds", worst.log.String())
	f.Text("lastLogError", worst.log.last)
	for _, s := range worst.unseen {
		f.Note("%s", s)
	}
	users := UsersOf(h.Host, table, worst.name)
	ReportUsers(f, &users)
	name := worst.name
	if len(identity) > 0 {
		name += " (" + strings.Join(identity, " ") + ")"
	}
	return f.Output(operation.VerdictOf("DiskFailing", "%s: %s%s", name, strings.Join(worst.signs, "; "), users.String())), nil
}

// judge looks for signs in the kernel's state, counters and log.
func (d *failingDisk) judge(minErrors int, maxAge time.Duration, logRead bool) {
	switch {
	case d.dead():
		d.signs = append(d.signs, "its driver has given up on it (state "+d.state+")")
	case d.state != "":
		d.clear = append(d.clear, "state "+d.state)
	}
	bad, medium := d.log.bad(), d.log.kinds["critical medium"]
	switch text := fmt.Sprintf("%s in the kernel log within %s", display.Count(bad, "failed request"), maxAge); {
	case !logRead:
		d.unseen = append(d.unseen, "can't read the kernel log")
	case medium > 0:
		d.signs = append(d.signs, fmt.Sprintf("%s, %d of them medium errors", text, medium))
	case bad >= max(1, minErrors):
		d.signs = append(d.signs, text+" ("+d.log.String()+")")
	default:
		d.clear = append(d.clear, text)
	}
}

// judgeNVMe looks for signs in the disk's own health log.
func (d *failingDisk) judgeNVMe(health *hostfs.NVMeHealth) {
	before := len(d.signs)
	for _, warning := range health.Warnings {
		switch warning {
		case "spare":
			d.signs = append(d.signs, fmt.Sprintf("spare blocks at %d %%, threshold %d %%", health.Spare, health.SpareThreshold))
		case "reliability":
			d.signs = append(d.signs, "its controller warns that it is no longer reliable")
		case "read-only":
			d.signs = append(d.signs, "its controller has made it read-only")
		}
	}
	if health.MediaErrors > 0 {
		d.signs = append(d.signs, fmt.Sprintf("%d media errors", health.MediaErrors))
	}
	if len(d.signs) == before {
		d.clear = append(d.clear, fmt.Sprintf("health log without such warnings, %d %% of its life used", health.Used))
	}
}

// notFailing returns the error that refutes the check, or another error if nothing could be
// checked, or too little: that a disk is gone without an error in the log says nothing about its
// health.
func notFailing(fine []*failingDisk) error {
	var text []string
	if i := slices.IndexFunc(fine, func(d *failingDisk) bool { return len(d.clear) == 0 || d.gone }); i >= 0 {
		return fmt.Errorf("nothing reports the health of %s: %s", fine[i].name, strings.Join(fine[i].unseen, ", "))
	}
	for _, d := range fine[:min(len(fine), 3)] {
		text = append(text, d.name+": "+strings.Join(append(slices.Clone(d.clear), d.unseen...), ", "))
	}
	if len(fine) > len(text) {
		text = append(text, fmt.Sprintf("and %s more", display.Count(len(fine)-len(text), "disk")))
	}
	return operation.RefutedBy("NoDiskFailing", "%s", strings.Join(text, "; "))
}
