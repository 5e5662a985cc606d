package operation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/display"
)

// fullPercent is from where on a filesystem is told as full: what is left is soon
// taken, and ext4's reserve is root's.
const fullPercent = 95

// Mounts returns the built-in mounts.
func Mounts(h Host) Builtin {
	patient := newPatience()
	return bounded(Builtin{
		Name: "mounts",
		Doc: "Tells the state of mounted filesystems: whether they refuse writes and why, how full they are in bytes and inodes, errors that ext4 and btrfs " +
			"remember. A server that does not answer in time is reported as such. mounts.txt has all.",
		Effect: Collect,
		Parameters: append(filesystemParameters("all on disks and from servers"),
			Parameter{Name: "all", Doc: "also those that the kernel makes up (proc, tmpfs, overlay)", Kind: Boolean, Default: "false"},
			Parameter{Name: "limit", Doc: "how long one filesystem may take to answer", Kind: Duration, Default: "2s", Max: int64(time.Minute)}),
		Results: append(append([]Result{
			{"filesystems", "how many were looked at"},
			{"refusing", "which refuse writes, though not mounted so, and why"},
			{"readOnly", "which are read-only for whatever reason"},
			{"full", "which are used to 95 % or more of their bytes or inodes"},
			{"withErrors", "which remember errors"},
			{"silent", "which did not answer in time"},
		}, filesystemResults()...), noteResult()),
		Run: func(ctx context.Context, call *Call) (Output, error) { return h.mounts(ctx, patient, call) },
	})
}

// filesystemResults are those about one filesystem.
func filesystemResults() []Result {
	return []Result{
		{"mountPoint", "where the filesystem is mounted; this and those below where one was asked for, or there is but one"},
		{"device", "its block device"},
		{"deviceNumber", "its MAJ:MIN"},
		{"fsType", "its type"},
		{"source", "what is mounted: a device, or a server's export"},
		{"options", "options of the filesystem"},
		{"refusesWrites", "why it takes no writes, though not mounted so: emergency-ro, shutdown, read-only after errors, its device is read-only"},
		{"mountedReadOnly", "whether it is read-only, for whatever reason"},
		{"sizeBytes", "its size"},
		{"availableBytes", "what others than root can still use"},
		{"usedPercent", "how full it is, as df has it"},
		{"inodes", "how many files it can have; missing: no fixed number"},
		{"inodesUsedPercent", "how many of them it has"},
		{"errors", "how many errors it remembers (ext4, btrfs)"},
		{"firstError", "the first of them: when, where, what (ext4)"},
		{"lastError", "the last of them"},
	}
}

func (h Host) mounts(ctx context.Context, patient patience, call *Call) (Output, error) {
	list, err := h.filesystems(call.Parameters, call.Parameters.Bool("all"))
	if err != nil {
		return Output{}, err
	}
	f := newFinding()
	lists := map[string][]string{}
	add := func(name string, fs *filesystem, what string) { lists[name] = append(lists[name], fs.shownPath()+what) }
	err = f.artifact(call, "mounts.txt", func(w *page) {
		for _, fs := range list {
			if err := h.seeShutdown(ctx, patient, fs); err != nil {
				f.note("%v", err)
			}
			usage, err := h.usage(ctx, patient, call.Parameters.Duration("limit"), fs)
			var late *noAnswerError
			switch {
			case errors.As(err, &late):
				add("silent", fs, "")
			case err != nil:
				f.note("it is not known how full %s is: %v", fs.shownPath(), err)
			}
			var use *fsUsage
			if err == nil {
				use = &usage
				if use.usedPercent() >= fullPercent && !neverEmpty(fs) {
					add("full", fs, fmt.Sprintf(" %d%%", use.usedPercent()))
				} else if use.inodesUsedPercent() >= fullPercent && !neverEmpty(fs) {
					add("full", fs, fmt.Sprintf(" inodes %d%%", use.inodesUsedPercent()))
				}
			}
			if fs.refusing != "" {
				add("refusing", fs, " "+fs.refusing)
			}
			if fs.readOnly {
				add("readOnly", fs, "")
			}
			if fs.errors() > 0 {
				add("withErrors", fs, fmt.Sprintf(" %d", fs.errors()))
			}
			fs.write(w, use, err)
			if len(list) == 1 {
				f.filesystem(fs, use)
			}
		}
	})
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	f.int("filesystems", int64(len(list)))
	for name, items := range lists {
		f.text(name, strings.Join(items, ", "))
	}
	return f.output(nil), err
}

// neverEmpty tells filesystems that are always full.
func neverEmpty(f *filesystem) bool {
	switch f.FSType {
	case "squashfs", "iso9660", "erofs", "udf":
		return true
	}
	return false
}

// filesystem sets the results about one filesystem.
func (f *finding) filesystem(fs *filesystem, use *fsUsage) {
	f.text("mountPoint", fs.Path)
	f.text("device", fs.device)
	f.text("deviceNumber", fmt.Sprintf("%d:%d", fs.Major, fs.Minor))
	f.text("fsType", fs.FSType)
	f.text("source", fs.Source)
	f.text("options", fs.SuperOptions)
	f.text("refusesWrites", fs.refusing)
	f.bool("mountedReadOnly", fs.readOnly)
	if fs.ext4 != nil || fs.btrfs != nil {
		f.uint("errors", fs.errors())
	}
	if fs.ext4 != nil && fs.ext4.Count > 0 {
		f.text("firstError", strings.TrimSpace(ext4ErrorText(&fs.ext4.First)))
		f.text("lastError", strings.TrimSpace(ext4ErrorText(&fs.ext4.Last)))
	} else if fs.btrfs != nil {
		f.text("lastError", fs.btrfs.String())
	}
	if use == nil {
		return
	}
	f.uint("sizeBytes", use.size)
	f.uint("availableBytes", use.available)
	f.uint("usedPercent", use.usedPercent())
	if use.inodes > 0 {
		f.uint("inodes", use.inodes)
		f.uint("inodesUsedPercent", use.inodesUsedPercent())
	}
}

// write adds a filesystem to mounts.txt.
func (f *filesystem) write(w *page, use *fsUsage, err error) {
	w.printf("%s %d:%d source %s options %s", f.String(), f.Major, f.Minor,
		display.Safe(f.Source, maxShown), display.Safe(f.SuperOptions, maxShown))
	if use != nil {
		w.printf(" size %s used %d%% inodes used %d%%", display.Bytes(use.size), use.usedPercent(), use.inodesUsedPercent())
	}
	if err != nil {
		w.printf(" usage unknown: %s", display.Safe(err.Error(), maxShown))
	}
	if f.refusing != "" {
		w.printf(" refuses writes: %s", f.refusing)
	}
	if s := f.errorText(); s != "" {
		w.printf(" %s", s)
	}
	w.printf("\n")
}
