package operation

import (
	"context"
	"fmt"
	"time"

	"github.com/kernosis/kernosis/collector/display"
)

// CheckMemoryLeak returns the built-in check-memory-leak.
func CheckMemoryLeak(h Host) Builtin {
	return bounded(Builtin{
		Name: "check-memory-leak",
		Doc: "Succeeds if the anonymous memory (with swap) of a memory cgroup grows steadily, with verdict MemoryLeakSuspected: within the window it grows by " +
			"at least minGrowth, and never falls by more than a tenth of that growth. Page cache does not count.",
		Effect: Check,
		Parameters: append(memoryGroupParameters(),
			Parameter{Name: "window", Doc: "how long to look", Kind: Duration, Default: "10s", Max: int64(10 * time.Minute)},
			Parameter{Name: "samples", Doc: "looks within it, 3 at least", Kind: Integer, Default: "6", Max: 100},
			Parameter{Name: "minGrowth", Doc: "growth that counts", Kind: Bytes, Default: "1Mi"}),
		Results: append([]Result{
			{"window", "how long was looked"},
			{"anonBytes", "anonymous memory with swap at the end"},
			{"anonGrowthBytes", "by how much it grew"},
			{"bytesPerSecond", "how fast"},
			{"limitBytes", "smallest limit of the cgroup and those above; missing: none"},
			{"untilLimit", "when usage reaches the limit at that rate"},
			{"growingProcesses", "the five processes whose anonymous memory grew the most"},
			{"growingPID", "the first of them"},
			{"growingComm", "its name"},
			noteResult(),
		}, ownerResults()...),
		Run: func(ctx context.Context, call *Call) (Output, error) { return h.checkMemoryLeak(ctx, call) },
	})
}

func (h Host) checkMemoryLeak(ctx context.Context, call *Call) (Output, error) {
	g, err := h.memoryGroup(call.Parameters)
	if err != nil {
		return Output{}, err
	}
	const least = 3 // two looks can't tell steady growth from a step
	samples, err := h.sampleMemoryOver(ctx, &g, call.Parameters.Duration("window"), max(least, int(call.Parameters.Int("samples"))))
	if err != nil {
		return Output{}, err
	}
	first, last := &samples[0], &samples[len(samples)-1]
	window, grew := last.at.Sub(first.at), anonGrowth(first, last)
	text := fmt.Sprintf("anonymous memory of %s went from %s to %s in %s", g.path,
		display.Bytes(first.use.Anon+first.use.Swap), display.Bytes(last.use.Anon+last.use.Swap), window.Truncate(100*time.Millisecond))
	if grew < max(1, call.Parameters.Bytes("minGrowth")) {
		return Output{}, refutedBy("MemoryDoesNotGrow", "%s", text)
	}
	if fall := largestFall(samples); fall > grew/10 {
		return Output{}, refutedBy("MemoryDoesNotGrow", "%s, but fell by %s in between", text, display.Bytes(uint64(fall)))
	}
	f := newFinding()
	f.owner(&g.owner)
	f.duration("window", window)
	f.uint("anonBytes", last.use.Anon+last.use.Swap)
	f.int("anonGrowthBytes", grew)
	rate := float64(grew) / window.Seconds()
	f.int("bytesPerSecond", int64(rate))
	if list := grown(first, last); len(list) > 0 {
		f.text("growingProcesses", topUses(list))
		f.int("growingPID", int64(list[0].pid))
		f.text("growingComm", list[0].comm)
		text += fmt.Sprintf(", %s of it %s", display.Bytes(uint64(list[0].bytes)), taskName(list[0].comm, list[0].pid))
	}
	if limit, _ := h.effectiveLimit(ctx, &g, ""); limit > 0 {
		f.uint("limitBytes", limit)
		if left := float64(limit) - float64(last.use.WorkingSet()); left > 0 {
			until := time.Duration(min(left/rate, 1e9) * float64(time.Second)).Truncate(time.Second)
			f.text("untilLimit", until.String())
			text += fmt.Sprintf("; at that rate the limit of %s is reached in %s", display.Bytes(limit), until)
		}
	}
	return f.output(verdictOf("MemoryLeakSuspected", "%s", text)), nil
}

// largestFall is the most that anonymous memory fell from its highest so far.
func largestFall(samples []memorySample) (fall int64) {
	var highest uint64
	for i := range samples {
		now := samples[i].use.Anon + samples[i].use.Swap
		highest = max(highest, now)
		fall = max(fall, int64(highest-now))
	}
	return fall
}
