package operation

import (
	"context"
	"fmt"
	"strings"

	"github.com/kernosis/kernosis/collector/display"
)

// OpenFiles returns the built-in open-files.
func OpenFiles(h Host) Builtin {
	return bounded(Builtin{
		Name: "open-files",
		Doc: "Lists the open files of a process in open-files.txt, and counts sockets, pipes and files that have been deleted. " +
			"No filesystem is asked, so a dead file server can't hold it up.",
		Effect: Collect,
		Parameters: append(pidParameters(true, "process whose files are listed"),
			Parameter{Name: "max", Doc: "files to list at most; more are only counted", Kind: Integer, Default: "10000", Max: 1 << 20}),
		Results: []Result{
			{"pid", "the process"},
			{"comm", "its name"},
			{"count", "how many files it has open"},
			{"limit", "how many it may have"},
			{"listed", "how many are listed and counted below"},
			{"files", "files and folders"},
			{"sockets", "sockets"},
			{"pipes", "pipes"},
			{"others", "epoll, timers, memfd and the like"},
			{"deleted", "files that have no name any more: their room is free once they are closed"},
			{"deletedFiles", "names that these had, as far as they fit"},
			noteResult(),
		},
		Run: func(ctx context.Context, call *Call) (Output, error) { return h.openFiles(ctx, call) },
	})
}

func (h Host) openFiles(ctx context.Context, call *Call) (Output, error) {
	stat, err := h.task(call.Parameters)
	if err != nil {
		return Output{}, err
	}
	pid := int(stat.PID)
	files, count, err := h.FS.OpenFiles(pid, int(call.Parameters.Int("max")))
	if err != nil {
		return Output{}, fmt.Errorf("list open files of process %d: %w", pid, err)
	}
	if ctx.Err() != nil {
		return Output{}, context.Cause(ctx)
	}
	f := newFinding()
	f.int("pid", int64(pid))
	f.text("comm", display.Safe(stat.Comm, 64))
	f.int("count", int64(count))
	f.int("listed", int64(len(files)))
	if count > len(files) {
		f.note("%d of %d are not listed", count-len(files), count)
	}
	if limits, err := h.FS.ProcLimits(pid); err == nil {
		for _, l := range limits {
			if l.Name == "open files" {
				f.text("limit", l.Soft)
			}
		}
	}
	kinds := map[string]int64{}
	var deleted []string
	for i := range files {
		o := &files[i]
		kinds[fileKind(o.Target)]++
		if o.Deleted && fileKind(o.Target) == "files" {
			deleted = addOnce(deleted, o.Shown())
			kinds["deleted"]++
		}
	}
	for _, kind := range []string{"files", "sockets", "pipes", "others", "deleted"} {
		f.int(kind, kinds[kind])
	}
	f.text("deletedFiles", strings.Join(deleted, " "))
	err = f.artifact(call, "open-files.txt", func(w *page) {
		for i := range files {
			w.printf("%d %s", files[i].FD, files[i].Shown())
			if files[i].Deleted {
				w.printf(" (deleted)")
			}
			w.printf("\n")
		}
	})
	return f.output(nil), err
}

// fileKind is the result that counts a file.
func fileKind(target string) string {
	switch {
	case strings.HasPrefix(target, "socket:["):
		return "sockets"
	case strings.HasPrefix(target, "pipe:["):
		return "pipes"
	case strings.HasPrefix(target, "/memfd:"), !strings.HasPrefix(target, "/"):
		return "others"
	}
	return "files"
}
