package operation

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"
)

// CgroupMemory returns the built-in cgroup-memory.
func CgroupMemory(h Host) Builtin {
	return bounded(Builtin{
		Name: "cgroup-memory",
		Doc: "Tells what a memory cgroup (v1 or v2) uses, its limits, what happened at them, and what grew within a window, by kind and by process. " +
			"Sizes are bytes and include the groups below it.",
		Effect:     Collect,
		TenantSafe: true,
		Parameters: append(memoryGroupParameters(),
			Parameter{Name: "window", Doc: "time between the two looks; 0s: one look, and no growth", Kind: Duration, Default: "2s", Max: int64(time.Minute)}),
		Results: append([]Result{
			{"version", "v1 or v2"},
			{"usageBytes", "all memory charged to it"},
			{"workingSetBytes", "of it, without the page cache that goes first: what kubelet reports"},
			{"peakBytes", "the most usage was"},
			{"limitBytes", "its own limit; missing: none"},
			{"effectiveLimitBytes", "smallest limit of it and the groups above, with podUID those of the pod; missing: none"},
			{"limitCgroup", "whose limit that is"},
			{"highBytes", "v2: above it its tasks are slowed down; missing: none"},
			{"swapBytes", "its memory in swap"},
			{"swapLimitBytes", "v2: limit of that; v1: of memory and swap together; missing: none"},
			{"anonBytes", "anonymous memory"},
			{"fileBytes", "page cache, with tmpfs"},
			{"shmemBytes", "tmpfs and shared memory"},
			{"kernelBytes", "the kernel's, for it: stacks, page tables, slab, sockets"},
			{"slabBytes", "v2: part of that"},
			{"sockBytes", "part of that: socket buffers"},
			{"heldBytes", "what only a kill gives back: anonymous, shared and the kernel's memory"},
			{"limitHits", "times that usage was held at the limit"},
			{"oomEvents", "v2: times that nothing could be given back"},
			{"oomKills", "processes killed for memory"},
			{"pressureSome10", "v2: percent of 10 s in which tasks of it waited for memory"},
			{"pressureFull10", "v2: in which all of them did"},
			{"window", "time between the two looks"},
			{"grew", "what grew within it, the most first: anon=+2MiB file=+4KiB"},
			{"usageGrowthBytes", "by how much usage grew; negative: shrank"},
			{"anonGrowthBytes", "by how much anonymous memory with swap grew"},
			{"processes", "how many processes it has"},
			{"topProcesses", "the five with the most resident memory"},
			{"topPID", "the first of them"},
			{"topComm", "its name"},
			{"growingProcesses", "the five whose anonymous memory grew the most"},
			{"growingPID", "the first of them"},
			{"growingComm", "its name"},
			noteResult(),
		}, ownerResults()...),
		Run: func(ctx context.Context, call *Call) (Output, error) { return h.cgroupMemory(ctx, call) },
	})
}

func (h Host) cgroupMemory(ctx context.Context, call *Call) (Output, error) {
	g, err := h.memoryGroup(call.Parameters)
	if err != nil {
		return Output{}, err
	}
	n, window := 2, call.Parameters.Duration("window")
	if window == 0 {
		n = 1
	}
	samples, err := h.sampleMemoryOver(ctx, &g, window, n)
	if err != nil {
		return Output{}, err
	}
	f := newFinding()
	f.owner(&g.owner)
	first, last := &samples[0], &samples[len(samples)-1]
	f.groupMemory(last)
	// With a podUID of the pod's groups only: what is above them tells of the node.
	if limit, group := h.effectiveLimit(ctx, &g, call.Parameters["podUID"]); limit > 0 {
		f.uint("effectiveLimitBytes", limit)
		f.text("limitCgroup", group)
	}
	h.groupPressure(&g, f)
	if last.more {
		f.note("only %d of its processes were looked at", maxGroupProcs)
	}
	f.int("processes", int64(len(last.procs)))
	if top := last.biggest(); len(top) > 0 {
		f.text("topProcesses", topUses(top))
		f.int("topPID", int64(top[0].pid))
		f.text("topComm", top[0].comm)
	}
	if n > 1 {
		f.memoryGrowth(first, last)
	}
	return f.output(nil), nil
}

// groupMemory sets the sizes. What has no limit, or what the version does not tell,
// is left out.
func (f *finding) groupMemory(s *memorySample) {
	m := &s.use
	f.text("version", "v2")
	if m.V1 {
		f.text("version", "v1")
	}
	f.uint("usageBytes", m.Usage)
	f.uint("workingSetBytes", m.WorkingSet())
	f.uint("swapBytes", m.Swap)
	f.uint("anonBytes", m.Anon)
	f.uint("fileBytes", m.File)
	f.uint("shmemBytes", m.Shmem)
	f.uint("sockBytes", m.Sock)
	f.uint("heldBytes", m.Held())
	f.uint("limitHits", m.LimitHits)
	f.uint("oomKills", m.OOMKills)
	if m.KernelKnown {
		f.uint("kernelBytes", m.Kernel)
	} else {
		f.note("the kernel's memory is not counted here")
	}
	if !m.V1 {
		f.uint("slabBytes", m.Slab)
		f.uint("oomEvents", m.OOMs)
	}
	for name, value := range map[string]uint64{
		"peakBytes": m.Peak, "limitBytes": m.Limit, "highBytes": m.High, "swapLimitBytes": m.SwapLimit,
	} {
		if value > 0 {
			f.uint(name, value)
		}
	}
}

func (h Host) groupPressure(g *memoryGroup, f *finding) {
	p, err := h.FS.CgroupPressure(g.layout, g.path)
	switch {
	case err == nil:
		f.text("pressureSome10", strconv.FormatFloat(p.Some.Avg10, 'f', 2, 64))
		f.text("pressureFull10", strconv.FormatFloat(p.Full.Avg10, 'f', 2, 64))
	case errors.Is(err, fs.ErrNotExist): // v1, or a kernel without
	default:
		f.note("memory pressure can't be read: %v", err)
	}
}

// memoryGrowth sets what grew from one sample to another.
func (f *finding) memoryGrowth(from, to *memorySample) {
	f.duration("window", to.at.Sub(from.at))
	f.int("usageGrowthBytes", int64(to.use.Usage)-int64(from.use.Usage))
	f.int("anonGrowthBytes", anonGrowth(from, to))
	var parts []string
	for _, g := range growths(&from.use, &to.use) {
		if g.by > 0 {
			parts = append(parts, fmt.Sprintf("%s=+%s", g.name, signedSize(g.by)))
		}
	}
	f.text("grew", strings.Join(parts, " "))
	if list := grown(from, to); len(list) > 0 {
		f.text("growingProcesses", topUses(list))
		f.int("growingPID", int64(list[0].pid))
		f.text("growingComm", list[0].comm)
	}
}

// anonGrowth is by how much anonymous memory grew, what was swapped out among it.
func anonGrowth(from, to *memorySample) int64 {
	return int64(to.use.Anon+to.use.Swap) - int64(from.use.Anon+from.use.Swap)
}
