package process

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/diagnose/operation"
)

func ProcessDetail(h operation.Host) operation.Builtin {
	return operation.Bounded(operation.Builtin{
		Name:       "process-detail",
		Doc:        "Describes a process: state, command line, parent, owner, memory, threads, open files, limits, OOM score.",
		Effect:     operation.Collect,
		Parameters: PIDParameters(true, "process or thread to describe"),
		Results: append([]operation.Result{
			{Name: "pid", Doc: "the process"},
			{Name: "tgid", Doc: "process of a thread; for a process, its own PID"},
			{Name: "comm", Doc: "its name"},
			{Name: "state", Doc: "R running, S sleeping, D in uninterruptible sleep, T stopped, Z zombie (ended, not waited for)"},
			{Name: "cmdline", Doc: "command line; empty for kernel threads"},
			{Name: "exe", Doc: "its executable, as the process sees it"},
			{Name: "ppid", Doc: "its parent"},
			{Name: "parentComm", Doc: "its parent's name"},
			{Name: "uid", Doc: "real user ID"},
			{Name: "startTime", Doc: "its start time since boot"},
			{Name: "age", Doc: "time since then"},
			{Name: "threads", Doc: "number of threads"},
			{Name: "blockedThreads", Doc: "threads in uninterruptible sleep"},
			{Name: "kernelThread", Doc: "whether it is a kernel thread"},
			{Name: "rssBytes", Doc: "resident memory"},
			{Name: "peakRSSBytes", Doc: "peak of it"},
			{Name: "anonBytes", Doc: "anonymous part of it"},
			{Name: "fileBytes", Doc: "file-mapped part of it"},
			{Name: "shmemBytes", Doc: "shared part of it"},
			{Name: "swapBytes", Doc: "its memory in swap"},
			{Name: "vmBytes", Doc: "size of its address space"},
			{Name: "openFiles", Doc: "number of its open files"},
			{Name: "openFilesLimit", Doc: "its limit"},
			{Name: "oomScore", Doc: "OOM score, 0 to 2000"},
			{Name: "oomScoreAdj", Doc: "its adjustment, -1000 (never) to 1000"},
			{Name: "netns", Doc: "inode of its network namespace"},
			{Name: "limits", Doc: "finite soft limits that are unlimited by default, except nice and priorities"},
			operation.NoteResult(),
		}, OwnerResults()...),
		Run: host{h, operation.NewPatience()}.processDetail,
	})
}

func (h host) processDetail(ctx context.Context, call *operation.Call) (operation.Output, error) {
	stat, err := Task(h.Host, call.Parameters)
	if err != nil {
		return operation.Output{}, err
	}
	pid := int(stat.PID)
	task, err := h.FS.Task(pid)
	if err != nil {
		return operation.Output{}, fmt.Errorf("examine process %d: %w", pid, err)
	}
	status, err := h.FS.ProcStatus(pid)
	if err != nil {
		return operation.Output{}, fmt.Errorf("examine process %d: %w", pid, err)
	}
	f := operation.NewFinding()
	f.Int("pid", int64(pid))
	f.Int("tgid", int64(task.TGID))
	f.Text("comm", task.Comm)
	f.Text("state", string(stat.State))
	f.Int("ppid", int64(stat.PPID))
	f.Uint("uid", uint64(status.UID))
	f.Text("startTime", stat.StartTime.String())
	f.Text("age", (hostfs.BootTime() - stat.StartTime).Truncate(time.Second).String())
	f.Int("threads", int64(status.Threads))
	f.Bool("kernelThread", status.KernelThread)
	reportMemory(f, &status)
	if parent, err := h.FS.Comm(int(stat.PPID)); err == nil {
		f.Text("parentComm", parent)
	}
	cmdline, err := operation.Look(ctx, h.patient, operation.LookLimit, func() (string, error) { return h.FS.Cmdline(pid) })
	if err != nil {
		f.Note("the command line can't be read: %v", err)
	}
	f.Text("cmdline", cmdline)
	h.processAccess(ctx, pid, f)
	f.Int("blockedThreads", int64(h.blockedThreads(int(task.TGID))))
	return f.Output(nil), nil
}

// reportMemory sets the sizes. A kernel thread has none.
func reportMemory(f *operation.Finding, s *hostfs.ProcStatus) {
	if s.KernelThread {
		return
	}
	f.Uint("rssBytes", s.RSS)
	f.Uint("peakRSSBytes", s.PeakRSS)
	f.Uint("anonBytes", s.AnonRSS)
	f.Uint("fileBytes", s.FileRSS)
	f.Uint("shmemBytes", s.ShmemRSS)
	f.Uint("swapBytes", s.Swap)
	f.Uint("vmBytes", s.VMSize)
}

// processAccess sets the results that may need privileges, and notes what can't be read.
func (h host) processAccess(ctx context.Context, pid int, f *operation.Finding) {
	if exe, err := h.FS.Executable(pid); err != nil {
		f.Note("the program's path can't be read: %v", err)
	} else {
		f.Text("exe", exe)
	}
	if o, err := OwnerOf(ctx, h.Host, h.patient, pid); err != nil {
		f.Note("%v", err)
	} else {
		ReportOwner(f, &o)
	}
	if _, count, err := h.FS.OpenFiles(pid, 0); err != nil {
		f.Note("open files can't be counted: %v", err)
	} else {
		f.Int("openFiles", int64(count))
	}
	if score, adj, err := h.FS.OOMScore(pid); err != nil {
		f.Note("the OOM score can't be read: %v", err)
	} else {
		f.Int("oomScore", int64(score))
		f.Int("oomScoreAdj", int64(adj))
	}
	if inode, err := h.FS.NetNS(pid); err == nil {
		f.Uint("netns", uint64(inode))
	}
	limits, err := h.FS.ProcLimits(pid)
	if err != nil {
		f.Note("limits can't be read: %v", err)
	}
	f.Text("limits", finiteLimits(limits))
	for _, l := range limits {
		if l.Name == "open files" {
			f.Text("openFilesLimit", l.Soft)
		}
	}
}

// finiteLimits returns "open files 1024, stack size 8388608 bytes".
func finiteLimits(limits []hostfs.ProcLimit) string {
	var out []string
	for _, l := range limits {
		switch {
		case l.Soft == "unlimited", strings.HasSuffix(l.Name, "priority"):
		case l.Unit == "" || strings.HasSuffix(l.Name, l.Unit):
			out = append(out, l.Name+" "+l.Soft)
		default:
			out = append(out, l.Name+" "+l.Soft+" "+l.Unit)
		}
	}
	return strings.Join(out, ", ")
}

// blockedThreads counts the threads of a process in uninterruptible sleep.
func (h host) blockedThreads(tgid int) (n int) {
	tids, err := h.FS.Threads(tgid)
	if err != nil {
		return 0
	}
	for _, tid := range tids {
		if stat, err := h.FS.Stat(tid); err == nil && stat.State == 'D' {
			n++
		}
	}
	return n
}
