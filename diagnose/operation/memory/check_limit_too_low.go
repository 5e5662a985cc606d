package memory

import (
	"context"
	"fmt"
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/process"
)

func CheckLimitTooLow(h operation.Host) operation.Builtin {
	return operation.Bounded(operation.Builtin{
		Name: "check-limit-too-low",
		Doc: "Checks whether a memory limit is too low for the workload. Verdict LimitTooLow, if all of these hold: unreclaimable memory (anonymous, " +
			"shared and kernel) is at least nearPercent of the limit, or processes were killed and the peak usage reached that share (cgroup v2 before Linux 5.19 has no peak: usage reached the limit); usage grows by at " +
			"most steadyPercent of the limit during window; one process has at least mainPercent of the anonymous memory, which excludes a crowd of " +
			"workers.",
		Effect: operation.Check,
		Parameters: append(memoryGroupParameters(),
			operation.Parameter{Name: "window", Doc: "how long to watch for growth", Kind: operation.Duration, Default: "5s", Max: int64(10 * time.Minute)},
			operation.Parameter{Name: "nearPercent", Doc: "share of the limit that counts as near it", Kind: operation.Integer, Default: "90", Max: 100},
			operation.Parameter{Name: "steadyPercent", Doc: "growth, as share of the limit, that counts as none", Kind: operation.Integer, Default: "2", Max: 100},
			operation.Parameter{Name: "mainPercent", Doc: "minimum share of anonymous memory of the largest process", Kind: operation.Integer, Default: "50", Max: 100}),
		Results: append([]operation.Result{
			{Name: "limitBytes", Doc: "smallest limit of the cgroup and its ancestors"},
			{Name: "limitCgroup", Doc: "cgroup with that limit"},
			{Name: "heldBytes", Doc: "unreclaimable memory: anonymous, shared and kernel"},
			{Name: "heldPercent", Doc: "its share of the limit"},
			{Name: "peakBytes", Doc: "peak usage"},
			{Name: "oomKills", Doc: "processes killed for memory"},
			{Name: "growthBytes", Doc: "growth of anonymous memory with swap during window"},
			{Name: "mainPID", Doc: "process with the most anonymous memory"},
			{Name: "mainComm", Doc: "its name"},
			{Name: "mainBytes", Doc: "its anonymous memory"},
			operation.NoteResult(),
		}, process.OwnerResults()...),
		Run: host(h).checkLimitTooLow,
	})
}

func (h host) checkLimitTooLow(ctx context.Context, call *operation.Call) (operation.Output, error) {
	g, err := h.findMemoryGroup(call.Parameters)
	if err != nil {
		return operation.Output{}, err
	}
	limit, limitGroup := h.effectiveLimit(ctx, &g, "")
	if limit == 0 {
		return operation.Output{}, operation.RefutedBy("NoMemoryLimit", "neither %s nor a parent cgroup has a memory limit", g.path)
	}
	// Use the memory of the cgroup that has the limit.
	g.path = limitGroup
	samples, err := h.sampleMemoryOver(ctx, &g, call.Parameters.Duration("window"), 2)
	if err != nil {
		return operation.Output{}, err
	}
	first, last := &samples[0], &samples[1]
	m := &last.use
	percent := func(n uint64) int64 { return int64(float64(n) / float64(limit) * 100) }
	text := fmt.Sprintf("%s of the %s limit of %s is unreclaimable (%d %%: anonymous %s, kernel %s), OOM kills %d",
		display.Bytes(m.Held()), display.Bytes(limit), g.path, percent(m.Held()), display.Bytes(m.Anon), display.Bytes(m.Kernel), m.OOMKills)
	if m.Peak > 0 {
		text += ", peak " + display.Bytes(m.Peak)
	}
	near := call.Parameters.Int("nearPercent")
	reached := percent(m.Peak) >= near
	if m.Peak == 0 { // unknown
		reached = m.OOMs > 0
	}
	if percent(m.Held()) < near && (m.OOMKills == 0 || !reached) {
		return operation.Output{}, operation.RefutedBy("LimitNotReached", "%s", text)
	}
	grew := anonGrowth(first, last)
	if steady := float64(limit) * float64(call.Parameters.Int("steadyPercent")) / 100; float64(grew) > steady {
		return operation.Output{}, operation.RefutedBy("MemoryGrows", "%s; usage grew by %s in %s", text, display.Bytes(uint64(grew)), last.at.Sub(first.at).Truncate(100*time.Millisecond))
	}
	list := grown(&memorySample{}, last) // from nothing
	if len(list) == 0 {
		return operation.Output{}, operation.RefutedBy("NoMainProcess", "%s; the cgroup has no process", text)
	}
	largest := &list[0]
	share := float64(largest.bytes) / float64(max(1, m.Anon+m.Swap)) * 100
	if share < float64(call.Parameters.Int("mainPercent")) {
		return operation.Output{}, operation.RefutedBy("NoMainProcess", "%s; the largest of %s, %s, has only %s", text,
			display.Count(len(last.procs), "process"), process.TaskName(largest.comm, largest.pid), display.Bytes(uint64(largest.bytes)))
	}
	f := operation.NewFinding()
	process.ReportOwner(f, &g.owner)
	f.Uint("limitBytes", limit)
	f.Text("limitCgroup", limitGroup)
	f.Uint("heldBytes", m.Held())
	f.Int("heldPercent", percent(m.Held()))
	if m.Peak > 0 {
		f.Uint("peakBytes", m.Peak)
	}
	f.Uint("oomKills", m.OOMKills)
	f.Int("growthBytes", grew)
	f.Int("mainPID", int64(largest.pid))
	f.Text("mainComm", largest.comm)
	f.Int("mainBytes", largest.bytes)
	return f.Output(operation.VerdictOf("LimitTooLow", "%s; usage does not grow, and %s has %s of it", text, process.TaskName(largest.comm, largest.pid), display.Bytes(uint64(largest.bytes)))), nil
}
