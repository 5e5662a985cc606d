package disk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/diagnose/operation"
)

// fullPercent is the usage from which a filesystem is reported as full: the rest is soon used up,
// and ext4's reserve is root's.
const fullPercent = 95

func Mounts(h operation.Host) operation.Builtin {
	return operation.Bounded(operation.Builtin{
		Name: "mounts",
		Doc: "Reports the state of mounted filesystems: whether and why they refuse writes, usage in bytes and inodes, errors recorded by ext4 and btrfs. " +
			"A server that does not answer in time is reported as silent. Artifact mounts.txt has all.",
		Effect: operation.Collect,
		Parameters: append(filesystemParameters("all on disks and from servers"),
			operation.Parameter{Name: "all", Doc: "also kernel-made filesystems (proc, tmpfs, overlay)", Kind: operation.Boolean, Default: "false"},
			operation.Parameter{Name: "limit", Doc: "time limit for each filesystem to answer", Kind: operation.Duration, Default: "2s", Max: int64(time.Minute)}),
		Results: append(append([]operation.Result{
			{Name: "filesystems", Doc: "number of inspected filesystems"},
			{Name: "refusing", Doc: "those that refuse writes although not mounted read-only, and why"},
			{Name: "readOnly", Doc: "those that are read-only for any reason"},
			{Name: "full", Doc: "those using 95 % or more of their bytes or inodes"},
			{Name: "withErrors", Doc: "those with recorded errors"},
			{Name: "silent", Doc: "those that did not answer in time"},
		}, filesystemResults()...), operation.NoteResult()),
		Run: host{h, operation.NewPatience()}.mounts,
	})
}

// filesystemResults returns the results about one filesystem.
func filesystemResults() []operation.Result {
	return []operation.Result{
		{Name: "mountPoint", Doc: "mount point; this and the results below are set if one filesystem was requested or only one exists"},
		{Name: "device", Doc: "its block device"},
		{Name: "deviceNumber", Doc: "its MAJ:MIN"},
		{Name: "fsType", Doc: "its type"},
		{Name: "source", Doc: "mounted source: device or server export"},
		{Name: "options", Doc: "filesystem options"},
		{Name: "refusesWrites", Doc: "why it refuses writes although not mounted read-only: emergency-ro, shutdown, read-only after errors, its device is read-only"},
		{Name: "mountedReadOnly", Doc: "whether it is read-only, for any reason"},
		{Name: "sizeBytes", Doc: "its size"},
		{Name: "availableBytes", Doc: "space available to non-root users"},
		{Name: "usedPercent", Doc: "usage, as in df"},
		{Name: "inodes", Doc: "maximum number of inodes; missing: not fixed"},
		{Name: "inodesUsedPercent", Doc: "inodes in use"},
		{Name: "errors", Doc: "number of recorded errors (ext4, btrfs)"},
		{Name: "firstError", Doc: "first of them: time, place, kind (ext4)"},
		{Name: "lastError", Doc: "last of them"},
	}
}

func (h host) mounts(ctx context.Context, call *operation.Call) (operation.Output, error) {
	list, err := h.filesystems(call.Parameters, call.Parameters.Bool("all"))
	if err != nil {
		return operation.Output{}, err
	}
	f := operation.NewFinding()
	lists := map[string][]string{}
	add := func(name string, fs *filesystem, what string) { lists[name] = append(lists[name], fs.shownPath()+what) }
	err = f.Artifact(call, "mounts.txt", func(w *operation.Page) {
		for _, fs := range list {
			if err := h.seeStopped(ctx, fs); err != nil {
				f.Note("%v", err)
			}
			usage, err := h.usage(ctx, call.Parameters.Duration("limit"), fs)
			var late *operation.NoAnswerError
			switch {
			case errors.As(err, &late):
				add("silent", fs, "")
			case err != nil:
				f.Note("can't determine the usage of %s: %v", fs.shownPath(), err)
			}
			var use *fsUsage
			if err == nil {
				use = &usage
				switch {
				case slices.Contains([]string{"squashfs", "iso9660", "erofs", "udf"}, fs.FSType): // always full
				case use.usedPercent() >= fullPercent:
					add("full", fs, fmt.Sprintf(" %d%%", use.usedPercent()))
				case use.inodesUsedPercent() >= fullPercent:
					add("full", fs, fmt.Sprintf(" inodes %d%%", use.inodesUsedPercent()))
				}
			}
			if fs.refusing != "" {
				add("refusing", fs, " "+fs.refusing)
			}
			if fs.readOnly() {
				add("readOnly", fs, "")
			}
			if fs.errors() > 0 {
				add("withErrors", fs, fmt.Sprintf(" %d", fs.errors()))
			}
			fs.write(w, use, err)
			if len(list) == 1 {
				reportFilesystem(f, fs, use)
			}
		}
	})
	f.Int("filesystems", int64(len(list)))
	for name, items := range lists {
		f.Text(name, strings.Join(items, ", "))
	}
	return f.Output(nil), err
}

// reportFilesystem sets the results about one filesystem.
func reportFilesystem(f *operation.Finding, fs *filesystem, use *fsUsage) {
	f.Text("mountPoint", fs.Path)
	f.Text("device", fs.device)
	f.Text("deviceNumber", fmt.Sprintf("%d:%d", fs.Major, fs.Minor))
	f.Text("fsType", fs.FSType)
	f.Text("source", fs.Source)
	f.Text("options", fs.SuperOptions)
	f.Text("refusesWrites", fs.refusing)
	f.Bool("mountedReadOnly", fs.readOnly())
	if fs.ext4 != nil || fs.btrfs != nil {
		f.Uint("errors", fs.errors())
	}
	if fs.ext4 != nil && fs.ext4.Count > 0 {
		f.Text("firstError", strings.TrimSpace(ext4ErrorText(&fs.ext4.First)))
		f.Text("lastError", strings.TrimSpace(ext4ErrorText(&fs.ext4.Last)))
	} else if fs.btrfs != nil {
		f.Text("lastError", fs.btrfs.String())
	}
	if use == nil {
		return
	}
	f.Uint("sizeBytes", use.size)
	f.Uint("availableBytes", use.available)
	f.Uint("usedPercent", use.usedPercent())
	if use.inodes > 0 {
		f.Uint("inodes", use.inodes)
		f.Uint("inodesUsedPercent", use.inodesUsedPercent())
	}
}

// write adds a filesystem to mounts.txt.
func (f *filesystem) write(w *operation.Page, use *fsUsage, err error) {
	w.Printf("%s %d:%d source %s options %s", f.String(), f.Major, f.Minor,
		display.Safe(f.Source, operation.MaxShown), display.Safe(f.SuperOptions, operation.MaxShown))
	if use != nil {
		w.Printf(" size %s used %d%% inodes used %d%%", display.Bytes(use.size), use.usedPercent(), use.inodesUsedPercent())
	}
	if err != nil {
		w.Printf(" usage unknown: %s", display.Safe(err.Error(), operation.MaxShown))
	}
	if f.refusing != "" {
		w.Printf(" refuses writes: %s", f.refusing)
	}
	if s := f.errorText(); s != "" {
		w.Printf(" %s", s)
	}
	w.Printf("\n")
}
