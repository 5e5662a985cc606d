package operation

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/hostfs"
)

// CheckDiskFailing returns the built-in check-disk-failing.
func CheckDiskFailing(h Host) Builtin {
	patient := newPatience()
	return bounded(Builtin{
		Name: "check-disk-failing",
		Doc: "Succeeds if a device's hardware, or any disk, gives signs of failing, with verdict DiskFailing and the evidence: the driver has given it up; its NVMe " +
			"health log warns of spare blocks, reliability or being read-only, or has media errors; the kernel's log has a medium error, or at least minErrors failed requests.",
		Effect: Check,
		Parameters: append(diskParameters("any disk"),
			Parameter{Name: "maxAge", Doc: "older lines of the log do not count", Kind: Duration, Default: "1h"},
			Parameter{Name: "minErrors", Doc: "failed requests in the log that count without a medium error", Kind: Integer, Default: "3", Max: 1_000_000}),
		Results: append([]Result{
			{"disk", "the failing disk, the worst of several"},
			{"device", "the same"},
			{"failingDisks", "all that fail"},
			{"evidence", "what speaks for it"},
			{"model", "its model"},
			{"serial", "its serial number"},
			{"logErrors", "failed requests in the kernel's log, a lower bound"},
			{"logErrorKinds", "these by kind"},
			{"lastLogError", "the last of them"},
			noteResult(),
		}, diskUserResults()...),
		Run: func(ctx context.Context, call *Call) (Output, error) { return h.checkDiskFailing(ctx, patient, call) },
	})
}

// failingDisk is a disk with the signs of its failing.
type failingDisk struct {
	*diskHealth
	signs  []string
	clear  []string // what was looked at and is fine
	unseen []string // what could not be looked at
}

func (h Host) checkDiskFailing(ctx context.Context, patient patience, call *Call) (Output, error) {
	f := newFinding()
	disks, err := h.hardwareOf(call.Parameters)
	if err != nil {
		return Output{}, err
	}
	if len(disks) == 0 {
		return Output{}, refutedBy("NoDiskFailing", "this node has no disk of its own")
	}
	logs, err := h.diskLogs(ctx, call.Parameters.Duration("maxAge"), f)
	if err != nil {
		f.note("%v", err)
	}
	table, err := h.FS.MountTable()
	if err != nil {
		f.note("the mounts on it are not known: %v", err)
	}
	var failing, fine []*failingDisk
	for _, name := range disks {
		if ctx.Err() != nil {
			return Output{}, context.Cause(ctx)
		}
		d := &failingDisk{diskHealth: h.diskHealth(name, logs, table)}
		d.judge(int(call.Parameters.Int("minErrors")), call.Parameters.Duration("maxAge"), logs != nil)
		if health, err := h.health(ctx, patient, name); err != nil {
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
		return Output{}, notFailing(fine)
	}
	slices.SortStableFunc(failing, func(a, b *failingDisk) int { return cmp.Compare(b.weight(), a.weight()) })
	worst := failing[0]
	names := make([]string, len(failing))
	for i, d := range failing {
		names[i] = d.name
	}
	f.text("disk", worst.name)
	f.text("device", worst.name)
	f.text("failingDisks", strings.Join(names, " "))
	f.text("evidence", strings.Join(worst.signs, "; "))
	var identity []string
	for _, fact := range h.identify(worst.name) {
		if fact.name == "model" || fact.name == "serial" {
			f.text(fact.name, fact.value)
			identity = append(identity, fact.value)
		}
	}
	f.int("logErrors", int64(worst.log.bad()))
	f.text("logErrorKinds", worst.log.String())
	f.text("lastLogError", worst.log.last)
	for _, s := range worst.unseen {
		f.note("%s", s)
	}
	users := h.usersOf(worst.name, table)
	f.users(&users)
	name := worst.name
	if len(identity) > 0 {
		name += " (" + strings.Join(identity, " ") + ")"
	}
	return f.output(verdictOf("DiskFailing", "%s: %s%s", name, strings.Join(worst.signs, "; "), users.String())), nil
}

// judge looks for signs in what the kernel counts.
func (d *failingDisk) judge(minErrors int, maxAge time.Duration, logRead bool) {
	switch {
	case d.dead():
		d.signs = append(d.signs, "its driver has given it up (state "+d.state+")")
	case d.state != "":
		d.clear = append(d.clear, "state "+d.state)
	}
	bad, medium := d.log.bad(), d.log.kinds["critical medium"]
	switch text := fmt.Sprintf("%s in the kernel's log within %s", display.Count(bad, "failed request"), maxAge); {
	case !logRead:
		d.unseen = append(d.unseen, "the kernel's log could not be read")
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

// notFailing tells what speaks against it; an error where nothing could be looked at.
func notFailing(fine []*failingDisk) error {
	var text []string
	if i := slices.IndexFunc(fine, func(d *failingDisk) bool { return len(d.clear) == 0 }); i >= 0 {
		return fmt.Errorf("nothing reports the health of %s: %s", fine[i].name, strings.Join(fine[i].unseen, ", "))
	}
	for _, d := range fine[:min(len(fine), 3)] {
		text = append(text, d.name+": "+strings.Join(append(slices.Clone(d.clear), d.unseen...), ", "))
	}
	if len(fine) > len(text) {
		text = append(text, fmt.Sprintf("and %s more", display.Count(len(fine)-len(text), "disk")))
	}
	return refutedBy("NoDiskFailing", "%s", strings.Join(text, "; "))
}
