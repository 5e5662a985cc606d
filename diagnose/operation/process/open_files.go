package process

import (
	"context"
	"fmt"
	"strings"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/diagnose/operation"
)

func OpenFiles(h operation.Host) operation.Builtin {
	return operation.Bounded(operation.Builtin{
		Name: "open-files",
		Doc: "Lists the open files of a process in artifact open-files.txt, and counts sockets, pipes and deleted files. Accesses no filesystem, so a " +
			"dead file server can't block it.",
		Effect: operation.Collect,
		Parameters: append(PIDParameters(true, "process to inspect"),
			operation.Parameter{Name: "max", Doc: "maximum number of files listed; others are only counted", Kind: operation.Integer, Default: "10000", Max: 1 << 20}),
		Results: []operation.Result{
			{Name: "pid", Doc: "the process"},
			{Name: "comm", Doc: "its name"},
			{Name: "count", Doc: "number of its open files"},
			{Name: "limit", Doc: "its limit"},
			{Name: "listed", Doc: "files listed, and counted below"},
			{Name: "files", Doc: "files and directories"},
			{Name: "sockets", Doc: "sockets"},
			{Name: "pipes", Doc: "pipes"},
			{Name: "others", Doc: "epoll, timers, memfd and the like"},
			{Name: "deleted", Doc: "deleted files; closing them frees their space"},
			{Name: "deletedFiles", Doc: "their former names, as far as they fit"},
			operation.NoteResult(),
		},
		Run: host{h, operation.NewPatience()}.openFiles,
	})
}

func (h host) openFiles(ctx context.Context, call *operation.Call) (operation.Output, error) {
	stat, err := Task(h.Host, call.Parameters)
	if err != nil {
		return operation.Output{}, err
	}
	pid := int(stat.PID)
	files, count, err := h.FS.OpenFiles(pid, int(call.Parameters.Int("max")))
	if err != nil {
		return operation.Output{}, fmt.Errorf("list open files of process %d: %w", pid, err)
	}
	f := operation.NewFinding()
	f.Int("pid", int64(pid))
	f.Text("comm", display.Safe(stat.Comm, 64))
	f.Int("count", int64(count))
	f.Int("listed", int64(len(files)))
	if count > len(files) {
		f.Note("%d of %d are not listed", count-len(files), count)
	}
	if limits, err := h.FS.ProcLimits(pid); err == nil {
		for _, l := range limits {
			if l.Name == "open files" {
				f.Text("limit", l.Soft)
			}
		}
	}
	kinds := map[string]int64{}
	var deleted []string
	for i := range files {
		o := &files[i]
		kinds[fileKind(o.Target)]++
		if o.Deleted && fileKind(o.Target) == "files" {
			deleted = operation.AddOnce(deleted, o.Shown())
			kinds["deleted"]++
		}
	}
	for _, kind := range []string{"files", "sockets", "pipes", "others", "deleted"} {
		f.Int(kind, kinds[kind])
	}
	f.Text("deletedFiles", strings.Join(deleted, " "))
	err = f.Artifact(call, "open-files.txt", func(w *operation.Page) {
		for i := range files {
			w.Printf("%d %s", files[i].FD, files[i].Shown())
			if files[i].Deleted {
				w.Printf(" (deleted)")
			}
			w.Printf("\n")
		}
	})
	return f.Output(nil), err
}

// fileKind returns the name of the result that counts a file.
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
