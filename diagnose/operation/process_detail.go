package operation

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/hostfs"
)

// ProcessDetail returns the built-in process-detail.
func ProcessDetail(h Host) Builtin {
	patient := newPatience()
	return bounded(Builtin{
		Name:       "process-detail",
		Doc:        "Describes a process: state, command line, parent, whose it is, memory, threads, open files, limits, how the OOM killer rates it.",
		Effect:     Collect,
		Parameters: pidParameters(true, "process (or thread) to describe"),
		Results: append([]Result{
			{"pid", "the process"},
			{"tgid", "process of which it is a thread; of a process itself the same"},
			{"comm", "its name"},
			{"state", "R runs, S sleeps, D sleeps uninterruptibly, T is stopped, Z has ended and is not waited for"},
			{"cmdline", "its command line; empty for kernel threads"},
			{"exe", "its program, as it sees it"},
			{"ppid", "its parent"},
			{"parentComm", "its parent's name"},
			{"uid", "real user id"},
			{"startTime", "when it started, since boot"},
			{"age", "how long ago that is"},
			{"threads", "how many threads it has"},
			{"blockedThreads", "how many of them are in uninterruptible sleep"},
			{"kernelThread", "whether it is one"},
			{"rssBytes", "resident memory"},
			{"peakRSSBytes", "the most it was"},
			{"anonBytes", "anonymous part of it"},
			{"fileBytes", "part of it that is mapped from files"},
			{"shmemBytes", "shared part of it"},
			{"swapBytes", "its memory in swap"},
			{"vmBytes", "size of its address space"},
			{"openFiles", "how many files it has open"},
			{"openFilesLimit", "how many it may have"},
			{"oomScore", "how the OOM killer rates it, 0 to 2000"},
			{"oomScoreAdj", "adjustment of that, -1000 (never) to 1000"},
			{"netns", "inode of its network namespace"},
			{"limits", "its soft limits that are none by default: finite ones but nice and priorities"},
			noteResult(),
		}, ownerResults()...),
		Run: func(ctx context.Context, call *Call) (Output, error) { return h.processDetail(ctx, patient, call) },
	})
}

func (h Host) processDetail(ctx context.Context, patient patience, call *Call) (Output, error) {
	stat, err := h.task(call.Parameters)
	if err != nil {
		return Output{}, err
	}
	pid := int(stat.PID)
	task, err := h.FS.Task(pid)
	if err != nil {
		return Output{}, fmt.Errorf("look at process %d: %w", pid, err)
	}
	status, err := h.FS.ProcStatus(pid)
	if err != nil {
		return Output{}, fmt.Errorf("look at process %d: %w", pid, err)
	}
	f := newFinding()
	f.int("pid", int64(pid))
	f.int("tgid", int64(task.TGID))
	f.text("comm", task.Comm)
	f.text("state", string(stat.State))
	f.int("ppid", int64(stat.PPID))
	f.uint("uid", uint64(status.UID))
	f.text("startTime", stat.StartTime.String())
	f.text("age", (hostfs.BootTime() - stat.StartTime).Truncate(time.Second).String())
	f.int("threads", int64(status.Threads))
	f.bool("kernelThread", status.KernelThread)
	f.memory(&status)
	if parent, err := h.FS.Comm(int(stat.PPID)); err == nil {
		f.text("parentComm", parent)
	}
	cmdline, err := look(ctx, patient, lookLimit, func() (string, error) { return h.FS.Cmdline(pid) })
	if err != nil {
		f.note("the command line can't be read: %v", err)
	}
	f.text("cmdline", cmdline)
	h.processAccess(ctx, patient, pid, f)
	f.int("blockedThreads", int64(h.blockedThreads(int(task.TGID))))
	if ctx.Err() != nil {
		return Output{}, context.Cause(ctx)
	}
	return f.output(nil), nil
}

// memory sets the sizes; a kernel thread has none.
func (f *finding) memory(s *hostfs.ProcStatus) {
	if s.KernelThread {
		return
	}
	f.uint("rssBytes", s.RSS)
	f.uint("peakRSSBytes", s.PeakRSS)
	f.uint("anonBytes", s.AnonRSS)
	f.uint("fileBytes", s.FileRSS)
	f.uint("shmemBytes", s.ShmemRSS)
	f.uint("swapBytes", s.Swap)
	f.uint("vmBytes", s.VMSize)
}

// processAccess sets what may need privileges; what may not be read is noted.
func (h Host) processAccess(ctx context.Context, patient patience, pid int, f *finding) {
	if exe, err := h.FS.Executable(pid); err != nil {
		f.note("the program's path can't be read: %v", err)
	} else {
		f.text("exe", exe)
	}
	if o, err := h.patientOwner(ctx, patient, pid); err != nil {
		f.note("%v", err)
	} else {
		f.owner(&o)
	}
	if _, count, err := h.FS.OpenFiles(pid, 0); err != nil {
		f.note("open files can't be counted: %v", err)
	} else {
		f.int("openFiles", int64(count))
	}
	if score, adj, err := h.FS.OOMScore(pid); err != nil {
		f.note("the OOM score can't be read: %v", err)
	} else {
		f.int("oomScore", int64(score))
		f.int("oomScoreAdj", int64(adj))
	}
	if inode, err := h.FS.NetNS(pid); err == nil {
		f.uint("netns", uint64(inode))
	}
	limits, err := h.FS.ProcLimits(pid)
	if err != nil {
		f.note("limits can't be read: %v", err)
	}
	f.text("limits", finiteLimits(limits))
	for _, l := range limits {
		if l.Name == "open files" {
			f.text("openFilesLimit", l.Soft)
		}
	}
}

// finiteLimits is "open files 1024, stack size 8388608 bytes".
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
func (h Host) blockedThreads(tgid int) (n int) {
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
