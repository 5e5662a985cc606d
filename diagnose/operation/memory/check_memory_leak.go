package memory

import (
	"context"
	"fmt"
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/process"
)

func CheckMemoryLeak(h operation.Host) operation.Builtin {
	return operation.Bounded(operation.Builtin{
		Name: "check-memory-leak",
		Doc: "Checks whether the anonymous memory of a cgroup grows steadily. Verdict MemoryLeakSuspected: with swap it grows by at least minGrowth " +
			"during window, and never falls by more than a tenth of that growth. Page cache does not count.",
		Effect: operation.Check,
		Parameters: append(memoryGroupParameters(),
			operation.Parameter{Name: "window", Doc: "observation time", Kind: operation.Duration, Default: "10s", Max: int64(10 * time.Minute)},
			operation.Parameter{Name: "samples", Doc: "samples during window, at least 3", Kind: operation.Integer, Default: "6", Max: 100},
			operation.Parameter{Name: "minGrowth", Doc: "growth that counts", Kind: operation.Bytes, Default: "1Mi"}),
		Results: append([]operation.Result{
			{Name: "window", Doc: "observation time"},
			{Name: "anonBytes", Doc: "anonymous memory with swap at the end"},
			{Name: "anonGrowthBytes", Doc: "its growth"},
			{Name: "bytesPerSecond", Doc: "growth rate"},
			{Name: "limitBytes", Doc: "smallest limit of the cgroup and its ancestors; missing: none"},
			{Name: "untilLimit", Doc: "time until usage reaches the limit at that rate"},
			{Name: "growingProcesses", Doc: "five processes whose anonymous memory grew most"},
			{Name: "growingPID", Doc: "first of them"},
			{Name: "growingComm", Doc: "its name"},
			operation.NoteResult(),
		}, process.OwnerResults()...),
		Run: host(h).checkMemoryLeak,
	})
}

func (h host) checkMemoryLeak(ctx context.Context, call *operation.Call) (operation.Output, error) {
	g, err := h.findMemoryGroup(call.Parameters)
	if err != nil {
		return operation.Output{}, err
	}
	const least = 3 // two samples can't distinguish steady growth from a step
	samples, err := h.sampleMemoryOver(ctx, &g, call.Parameters.Duration("window"), max(least, int(call.Parameters.Int("samples"))))
	if err != nil {
		return operation.Output{}, err
	}
	first, last := &samples[0], &samples[len(samples)-1]
	window, grew := last.at.Sub(first.at), anonGrowth(first, last)
	text := fmt.Sprintf("anonymous memory of %s went from %s to %s in %s", g.path,
		display.Bytes(first.use.Anon+first.use.Swap), display.Bytes(last.use.Anon+last.use.Swap), window.Truncate(100*time.Millisecond))
	if grew < max(1, call.Parameters.Bytes("minGrowth")) {
		return operation.Output{}, operation.RefutedBy("MemoryDoesNotGrow", "%s", text)
	}
	if fall := largestFall(samples); fall > grew/10 {
		return operation.Output{}, operation.RefutedBy("MemoryDoesNotGrow", "%s, but fell by %s in between", text, display.Bytes(uint64(fall)))
	}
	f := operation.NewFinding()
	process.ReportOwner(f, &g.owner)
	f.Duration("window", window)
	f.Uint("anonBytes", last.use.Anon+last.use.Swap)
	f.Int("anonGrowthBytes", grew)
	rate := float64(grew) / window.Seconds()
	f.Int("bytesPerSecond", int64(rate))
	list := grown(first, last)
	reportUses(f, "growing", list)
	if len(list) > 0 {
		text += fmt.Sprintf(", %s of it in %s", display.Bytes(uint64(list[0].bytes)), process.TaskName(list[0].comm, list[0].pid))
	}
	if limit, _ := h.effectiveLimit(ctx, &g, ""); limit > 0 {
		f.Uint("limitBytes", limit)
		if left := float64(limit) - float64(last.use.WorkingSet()); left > 0 {
			until := time.Duration(min(left/rate, 1e9) * float64(time.Second)).Truncate(time.Second)
			f.Text("untilLimit", until.String())
			text += fmt.Sprintf("; at that rate the limit of %s is reached in %s", display.Bytes(limit), until)
		}
	}
	return f.Output(operation.VerdictOf("MemoryLeakSuspected", "%s", text)), nil
}

// largestFall returns the largest fall of anonymous memory from its previous maximum.
func largestFall(samples []memorySample) (fall int64) {
	var highest uint64
	for i := range samples {
		now := samples[i].use.Anon + samples[i].use.Swap
		highest = max(highest, now)
		fall = max(fall, int64(highest-now))
	}
	return fall
}
