package memory

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
	"github.com/kernosis/kernosis/diagnose/operation/process"
)

// maxGroupProcs bounds the processes of a cgroup that are inspected individually.
const maxGroupProcs = 4096

// memorySample is the memory use of a cgroup and its processes at one moment.
type memorySample struct {
	at    time.Time
	use   hostfs.CgroupMemoryUse
	procs map[procID]procMemory
	more  bool // some processes were not inspected
}

// procID identifies a process even if its PID is reused.
type procID struct {
	pid   int
	start time.Duration
}

type procMemory struct {
	comm string
	rss  uint64
	anon uint64 // including swap
}

func sampleMemory(h operation.Host, g *memoryGroup) (s memorySample, err error) {
	s = memorySample{at: time.Now(), procs: map[procID]procMemory{}}
	if s.use, err = h.FS.CgroupMemoryUse(g.layout, g.path); err != nil {
		return s, fmt.Errorf("read memory cgroup %s: %w", g.path, err)
	}
	pids, more, err := h.FS.CgroupProcs(g.layout, g.path, maxGroupProcs)
	if err != nil {
		return s, fmt.Errorf("list processes of cgroup %s: %w", g.path, err)
	}
	s.more = more
	for _, pid := range pids {
		stat, err := h.FS.Stat(pid)
		if err != nil {
			continue // ended
		}
		status, err := h.FS.ProcStatus(pid)
		if err != nil || status.KernelThread {
			continue
		}
		s.procs[procID{pid, stat.StartTime}] = procMemory{
			comm: display.Safe(stat.Comm, 64), rss: status.RSS, anon: status.AnonRSS + status.Swap,
		}
	}
	return s, nil
}

// sampleMemoryOver takes n samples, spread evenly over the window.
func sampleMemoryOver(h operation.Host, ctx context.Context, g *memoryGroup, window time.Duration, n int) ([]memorySample, error) {
	samples := make([]memorySample, 0, n)
	for i := range n {
		if i > 0 {
			if err := operation.Pause(ctx, window/time.Duration(n-1)); err != nil {
				return nil, err
			}
		}
		s, err := sampleMemory(h, g)
		if err != nil {
			return nil, err
		}
		samples = append(samples, s)
	}
	return samples, nil
}

// procUse is a process with a size.
type procUse struct {
	procID
	comm  string
	bytes int64
}

func (p *procUse) String() string {
	return process.TaskName(p.comm, p.pid) + "=" + signedSize(p.bytes)
}

// biggest returns the processes sorted by resident memory.
func (s *memorySample) biggest() []procUse {
	var out []procUse
	for id, p := range s.procs {
		out = append(out, procUse{id, p.comm, int64(p.rss)})
	}
	sortUse(out)
	return out
}

// grown returns the processes whose anonymous memory, including swap, has grown between two
// samples. A new process has grown by all of its memory.
func grown(from, to *memorySample) []procUse {
	var out []procUse
	for id, p := range to.procs {
		if by := int64(p.anon) - int64(from.procs[id].anon); by > 0 {
			out = append(out, procUse{id, p.comm, by})
		}
	}
	sortUse(out)
	return out
}

func sortUse(list []procUse) {
	slices.SortFunc(list, func(a, b procUse) int { return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.pid, b.pid)) })
}

// reportUses sets the results for the first five processes of a list, and for the first one. For
// the name "top" they are topProcesses, topPID and topComm.
func reportUses(f *operation.Finding, name string, list []procUse) {
	const most = 5
	var shown []string
	for i := range list[:min(len(list), most)] {
		shown = append(shown, list[i].String())
	}
	f.Text(name+"Processes", strings.Join(shown, " "))
	if len(list) > 0 {
		f.Int(name+"PID", int64(list[0].pid))
		f.Text(name+"Comm", list[0].comm)
	}
}

// growth is the growth of a part of a cgroup's memory.
type growth struct {
	name string
	by   int64
}

// growths returns the growth of each part, sorted from largest to smallest.
func growths(from, to *hostfs.CgroupMemoryUse) []growth {
	by := func(a, b uint64) int64 { return int64(b) - int64(a) }
	out := []growth{
		{"anon", by(from.Anon+from.Swap, to.Anon+to.Swap)},
		{"file", by(from.File-min(from.File, from.Shmem), to.File-min(to.File, to.Shmem))},
		{"shmem", by(from.Shmem, to.Shmem)},
		{"kernel", by(from.Kernel, to.Kernel)},
	}
	slices.SortStableFunc(out, func(a, b growth) int { return cmp.Compare(b.by, a.by) })
	return out
}

// signedSize formats a size without a space, for lists. It may be negative.
func signedSize(n int64) string {
	return strings.ReplaceAll(display.Bytes(n), " ", "")
}
