package operation

import (
	"context"
	"fmt"
	"time"

	"github.com/kernosis/kernosis/collector/display"
)

// CheckLimitTooLow returns the built-in check-limit-too-low.
func CheckLimitTooLow(h Host) Builtin {
	return bounded(Builtin{
		Name: "check-limit-too-low",
		Doc: "Succeeds if a memory cgroup needs about all that its limit allows, and no more, with verdict LimitTooLow. That is so if what only a kill gives back " +
			"(anonymous, shared and the kernel's memory) is at least nearPercent of the limit, or processes were killed and the peak was; it grows by at most " +
			"steadyPercent of the limit within the window; and one process has at least mainPercent of the anonymous memory, so that it is no crowd of workers.",
		Effect: Check,
		Parameters: append(memoryGroupParameters(),
			Parameter{Name: "window", Doc: "how long to look for growth", Kind: Duration, Default: "5s", Max: int64(10 * time.Minute)},
			Parameter{Name: "nearPercent", Doc: "share of the limit that counts as near it", Kind: Integer, Default: "90", Max: 100},
			Parameter{Name: "steadyPercent", Doc: "growth, as share of the limit, that counts as none", Kind: Integer, Default: "2", Max: 100},
			Parameter{Name: "mainPercent", Doc: "share of the anonymous memory that the largest process must have", Kind: Integer, Default: "50", Max: 100}),
		Results: append([]Result{
			{"limitBytes", "smallest limit of the cgroup and those above"},
			{"limitCgroup", "whose limit that is"},
			{"heldBytes", "what only a kill gives back: anonymous, shared and the kernel's memory"},
			{"heldPercent", "share of the limit that this is"},
			{"peakBytes", "the most usage was"},
			{"oomKills", "processes killed for memory"},
			{"growthBytes", "by how much anonymous memory with swap grew within the window"},
			{"mainPID", "the process with the most anonymous memory"},
			{"mainComm", "its name"},
			{"mainBytes", "its anonymous memory"},
			noteResult(),
		}, ownerResults()...),
		Run: func(ctx context.Context, call *Call) (Output, error) { return h.checkLimitTooLow(ctx, call) },
	})
}

func (h Host) checkLimitTooLow(ctx context.Context, call *Call) (Output, error) {
	g, err := h.memoryGroup(call.Parameters)
	if err != nil {
		return Output{}, err
	}
	limit, limitGroup := h.effectiveLimit(ctx, &g, "")
	if limit == 0 {
		return Output{}, refutedBy("NoMemoryLimit", "%s has no memory limit, nor has a group above it", g.path)
	}
	// The group that has the limit is the one whose memory counts.
	g.path = limitGroup
	samples, err := h.sampleMemoryOver(ctx, &g, call.Parameters.Duration("window"), 2)
	if err != nil {
		return Output{}, err
	}
	first, last := &samples[0], &samples[1]
	m := &last.use
	percent := func(n uint64) int64 { return int64(float64(n) / float64(limit) * 100) }
	text := fmt.Sprintf("%s of the limit of %s of %s only a kill gives back (%d %%: anonymous %s, kernel %s), OOM kills %d",
		display.Bytes(m.Held()), display.Bytes(limit), g.path, percent(m.Held()), display.Bytes(m.Anon), display.Bytes(m.Kernel), m.OOMKills)
	if m.Peak > 0 {
		text += ", peak " + display.Bytes(m.Peak)
	}
	near := call.Parameters.Int("nearPercent")
	if percent(m.Held()) < near && (m.OOMKills == 0 || percent(m.Peak) < near) {
		return Output{}, refutedBy("LimitNotReached", "%s", text)
	}
	grew := anonGrowth(first, last)
	if steady := float64(limit) * float64(call.Parameters.Int("steadyPercent")) / 100; float64(grew) > steady {
		return Output{}, refutedBy("MemoryGrows", "%s; it grew by %s in %s", text, display.Bytes(uint64(grew)), last.at.Sub(first.at).Truncate(100*time.Millisecond))
	}
	largest := largestAnon(last)
	if largest == nil {
		return Output{}, refutedBy("NoMainProcess", "%s; it has no process", text)
	}
	share := float64(largest.bytes) / float64(max(1, m.Anon+m.Swap)) * 100
	if share < float64(call.Parameters.Int("mainPercent")) {
		return Output{}, refutedBy("NoMainProcess", "%s; of %s the largest, %s, has %s", text,
			display.Count(len(last.procs), "process"), taskName(largest.comm, largest.pid), display.Bytes(uint64(largest.bytes)))
	}
	f := newFinding()
	f.owner(&g.owner)
	f.uint("limitBytes", limit)
	f.text("limitCgroup", limitGroup)
	f.uint("heldBytes", m.Held())
	f.int("heldPercent", percent(m.Held()))
	if m.Peak > 0 {
		f.uint("peakBytes", m.Peak)
	}
	f.uint("oomKills", m.OOMKills)
	f.int("growthBytes", grew)
	f.int("mainPID", int64(largest.pid))
	f.text("mainComm", largest.comm)
	f.int("mainBytes", largest.bytes)
	return f.output(verdictOf("LimitTooLow", "%s; it does not grow, and %s has %s of it", text, taskName(largest.comm, largest.pid), display.Bytes(uint64(largest.bytes)))), nil
}

// largestAnon is the process with the most anonymous memory; nil: there is none.
func largestAnon(s *memorySample) *procUse {
	list := grown(&memorySample{}, s) // from nothing
	if len(list) == 0 {
		return nil
	}
	return &list[0]
}
