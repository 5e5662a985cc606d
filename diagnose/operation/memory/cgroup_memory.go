package memory

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/process"
)

func CgroupMemory(h operation.Host) operation.Builtin {
	return operation.Bounded(operation.Builtin{
		Name: "cgroup-memory",
		Doc: "Reports the usage of a memory cgroup, its limits, events at these limits, and growth during window, by kind and by process. Sizes are in " +
			"bytes and include child cgroups.",
		Effect:     operation.Collect,
		TenantSafe: true,
		Parameters: append(memoryGroupParameters(),
			operation.Parameter{Name: "window", Doc: "time between two samples; 0s: one sample, no growth", Kind: operation.Duration, Default: "2s", Max: int64(time.Minute)}),
		Results: append([]operation.Result{
			{Name: "version", Doc: "v1 or v2"},
			{Name: "usageBytes", Doc: "all memory charged to it"},
			{Name: "workingSetBytes", Doc: "usage without the page cache that is reclaimed first, as kubelet reports it"},
			{Name: "peakBytes", Doc: "peak usage"},
			{Name: "limitBytes", Doc: "its own limit; missing: none"},
			{Name: "effectiveLimitBytes", Doc: "smallest limit of it and its ancestors, with podUID those within the pod; missing: none"},
			{Name: "limitCgroup", Doc: "cgroup with that limit"},
			{Name: "highBytes", Doc: "v2: its tasks are throttled above this; missing: none"},
			{Name: "swapBytes", Doc: "its memory in swap"},
			{Name: "swapLimitBytes", Doc: "v2: swap limit; v1: limit of memory and swap together; missing: none"},
			{Name: "anonBytes", Doc: "anonymous memory"},
			{Name: "fileBytes", Doc: "page cache, including tmpfs"},
			{Name: "shmemBytes", Doc: "tmpfs and shared memory"},
			{Name: "kernelBytes", Doc: "kernel memory for it: stacks, page tables, slab, sockets"},
			{Name: "slabBytes", Doc: "v2: slab part of it"},
			{Name: "sockBytes", Doc: "socket buffers, part of it"},
			{Name: "heldBytes", Doc: "unreclaimable memory: anonymous, shared and kernel"},
			{Name: "limitHits", Doc: "times usage was held at the limit"},
			{Name: "oomEvents", Doc: "v2: times nothing was reclaimable"},
			{Name: "oomKills", Doc: "processes killed for memory"},
			{Name: "pressureSome10", Doc: "v2: percent of 10 s in which some of its tasks waited for memory"},
			{Name: "pressureFull10", Doc: "v2: percent in which all of them did"},
			{Name: "window", Doc: "time between the samples"},
			{Name: "grew", Doc: "what grew, largest first: anon=+2MiB file=+4KiB"},
			{Name: "usageGrowthBytes", Doc: "growth of usage; negative: shrank"},
			{Name: "anonGrowthBytes", Doc: "growth of anonymous memory with swap"},
			{Name: "processes", Doc: "number of processes"},
			{Name: "topProcesses", Doc: "five processes with the most resident memory"},
			{Name: "topPID", Doc: "first of them"},
			{Name: "topComm", Doc: "its name"},
			{Name: "growingProcesses", Doc: "five processes whose anonymous memory grew most"},
			{Name: "growingPID", Doc: "first of them"},
			{Name: "growingComm", Doc: "its name"},
			operation.NoteResult(),
		}, process.OwnerResults()...),
		Run: host(h).cgroupMemory,
	})
}

func (h host) cgroupMemory(ctx context.Context, call *operation.Call) (operation.Output, error) {
	g, err := h.findMemoryGroup(call.Parameters)
	if err != nil {
		return operation.Output{}, err
	}
	n, window := 2, call.Parameters.Duration("window")
	if window == 0 {
		n = 1
	}
	samples, err := h.sampleMemoryOver(ctx, &g, window, n)
	if err != nil {
		return operation.Output{}, err
	}
	f := operation.NewFinding()
	process.ReportOwner(f, &g.owner)
	first, last := &samples[0], &samples[len(samples)-1]
	reportGroupMemory(f, last)
	// With a podUID, use only limits within the pod: those above would reveal facts about the node.
	if limit, group := h.effectiveLimit(ctx, &g, call.Parameters["podUID"]); limit > 0 {
		f.Uint("effectiveLimitBytes", limit)
		f.Text("limitCgroup", group)
	}
	h.groupPressure(&g, f)
	if last.more {
		f.Note("only %d of its processes were examined", len(last.procs))
	}
	f.Int("processes", int64(len(last.procs)))
	reportUses(f, "top", last.biggest())
	if n > 1 {
		reportMemoryGrowth(f, first, last)
	}
	return f.Output(nil), nil
}

// reportGroupMemory sets the sizes. It leaves out missing limits, and what the cgroup version does
// not report.
func reportGroupMemory(f *operation.Finding, s *memorySample) {
	m := &s.use
	f.Text("version", "v2")
	if m.V1 {
		f.Text("version", "v1")
	}
	f.Uint("usageBytes", m.Usage)
	f.Uint("workingSetBytes", m.WorkingSet())
	f.Uint("swapBytes", m.Swap)
	f.Uint("anonBytes", m.Anon)
	f.Uint("fileBytes", m.File)
	f.Uint("shmemBytes", m.Shmem)
	f.Uint("sockBytes", m.Sock)
	f.Uint("heldBytes", m.Held())
	f.Uint("limitHits", m.LimitHits)
	f.Uint("oomKills", m.OOMKills)
	if m.KernelKnown {
		f.Uint("kernelBytes", m.Kernel)
	} else {
		f.Note("kernel memory is not accounted here")
	}
	if !m.V1 {
		f.Uint("slabBytes", m.Slab)
		f.Uint("oomEvents", m.OOMs)
	}
	for name, value := range map[string]uint64{
		"peakBytes": m.Peak, "limitBytes": m.Limit, "highBytes": m.High, "swapLimitBytes": m.SwapLimit,
	} {
		if value > 0 {
			f.Uint(name, value)
		}
	}
}

func (h host) groupPressure(g *memoryGroup, f *operation.Finding) {
	p, err := h.FS.CgroupPressure(g.layout, "memory", g.path)
	switch {
	case err == nil:
		f.Float("pressureSome10", p.Some)
		f.Float("pressureFull10", p.Full)
	case errors.Is(err, fs.ErrNotExist): // v1, or a kernel without pressure
	default:
		f.Note("memory pressure can't be read: %v", err)
	}
}

// reportMemoryGrowth sets the growth between two samples.
func reportMemoryGrowth(f *operation.Finding, from, to *memorySample) {
	f.Duration("window", to.at.Sub(from.at))
	f.Int("usageGrowthBytes", int64(to.use.Usage)-int64(from.use.Usage))
	f.Int("anonGrowthBytes", anonGrowth(from, to))
	var parts []string
	for _, g := range growths(&from.use, &to.use) {
		if g.by > 0 {
			parts = append(parts, fmt.Sprintf("%s=+%s", g.name, signedSize(g.by)))
		}
	}
	f.Text("grew", strings.Join(parts, " "))
	reportUses(f, "growing", grown(from, to))
}

// anonGrowth returns the growth of anonymous memory, swap included.
func anonGrowth(from, to *memorySample) int64 {
	return int64(to.use.Anon+to.use.Swap) - int64(from.use.Anon+from.use.Swap)
}
