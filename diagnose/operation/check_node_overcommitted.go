package operation

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kernosis/kernosis/collector/display"
)

// CheckNodeOvercommitted returns the built-in check-node-overcommitted.
func CheckNodeOvercommitted(h Host) Builtin {
	return bounded(Builtin{
		Name: "check-node-overcommitted",
		Doc: "Succeeds if the node itself is short of memory, with verdict NodeOvercommitted: the OOM kill was global, or available memory is below " +
			"minAvailablePercent. The sum of the pods' memory limits and the largest pods are evidence, no condition: limits may add up to more than there is.",
		Effect: Check,
		Parameters: []Parameter{
			{Name: "oomScope", Doc: "scope of the OOM kill that is looked into", Kind: Enum, Default: "unknown", Values: []string{"unknown", "memcg", "global"}},
			{Name: "limitCgroup", Doc: "cgroup whose limit an OOM kill was for: then it was none of the node", Kind: String},
			{Name: "minAvailablePercent", Doc: "share of the node's memory below which it is short", Kind: Integer, Default: "5", Max: 100},
		},
		Results: []Result{
			{"totalBytes", "the node's memory"},
			{"availableBytes", "what can be had without swapping, as the kernel estimates it"},
			{"swapTotalBytes", "swap"},
			{"swapFreeBytes", "free swap"},
			{"slabBytes", "the kernel's slab memory that can't be given back"},
			{"committedBytes", "what all processes were promised"},
			{"pressureSome10", "percent of 10 s in which tasks waited for memory"},
			{"pressureFull10", "in which all of them did"},
			{"pods", "pods that have a memory cgroup"},
			{"podLimitsBytes", "sum of the pods' memory limits"},
			{"podsWithoutLimit", "pods that have none"},
			{"podUsageBytes", "what all pods use, without page cache that goes first"},
			{"topPods", "the five with the largest such usage, by UID"},
			noteResult(),
		},
		Run: func(ctx context.Context, call *Call) (Output, error) { return h.checkNodeOvercommitted(ctx, call) },
	})
}

func (h Host) checkNodeOvercommitted(ctx context.Context, call *Call) (Output, error) {
	info, err := h.FS.MemInfo()
	if err != nil {
		return Output{}, fmt.Errorf("read the node's memory: %w", err)
	}
	total, available := info["MemTotal"], info["MemAvailable"]
	if total == 0 {
		return Output{}, fmt.Errorf("%s has no MemTotal", h.FS.Path("/proc/meminfo"))
	}
	f := newFinding()
	f.uint("totalBytes", total)
	f.uint("availableBytes", available)
	f.uint("swapTotalBytes", info["SwapTotal"])
	f.uint("swapFreeBytes", info["SwapFree"])
	f.uint("slabBytes", info["SUnreclaim"])
	f.uint("committedBytes", info["Committed_AS"])
	if p, err := h.FS.Pressure("memory"); err == nil {
		f.text("pressureSome10", strconv.FormatFloat(p.Some.Avg10, 'f', 2, 64))
		f.text("pressureFull10", strconv.FormatFloat(p.Full.Avg10, 'f', 2, 64))
	}
	pods, err := h.podMemory(ctx)
	if err != nil {
		f.note("the pods' memory is not known: %v", err)
	}
	f.podMemory(pods)
	text := fmt.Sprintf("%s of %s available (%d %%)%s", display.Bytes(available), display.Bytes(total), available*100/total, podSummary(pods))
	scope := call.Parameters["oomScope"]
	if scope == "unknown" && call.Parameters["limitCgroup"] != "" {
		scope = "memcg"
	}
	switch {
	case scope == "global":
		return f.output(verdictOf("NodeOvercommitted", "the OOM kill was for the whole node; %s by now", text)), nil
	case available*100 < total*uint64(call.Parameters.Int("minAvailablePercent")):
		return f.output(verdictOf("NodeOvercommitted", "%s", text)), nil
	case scope == "memcg":
		return Output{}, refutedBy("NodeHasMemory", "the OOM kill was for a cgroup's limit; %s", text)
	}
	return Output{}, refutedBy("NodeHasMemory", "%s", text)
}

// podUse is a pod's memory.
type podUse struct {
	uid   string
	limit uint64 // 0: none
	use   uint64
}

func (h Host) podMemory(ctx context.Context) (pods []podUse, err error) {
	layout, err := h.FS.CgroupLayout()
	if err != nil {
		return nil, err
	}
	err = h.podGroups(layout, func(group string, o *owner) bool {
		m, err := h.FS.CgroupMemoryUse(layout, group)
		if err == nil { // else the pod has ended
			pods = append(pods, podUse{o.container.PodUID, m.Limit, m.WorkingSet()})
		}
		return ctx.Err() == nil
	})
	slices.SortFunc(pods, func(a, b podUse) int { return cmp.Or(cmp.Compare(b.use, a.use), cmp.Compare(a.uid, b.uid)) })
	return pods, err
}

func (f *finding) podMemory(pods []podUse) {
	limits, use, unlimited := podSums(pods)
	var top []string
	for _, p := range pods[:min(len(pods), 5)] {
		top = append(top, p.uid+"="+signedSize(int64(p.use)))
	}
	f.int("pods", int64(len(pods)))
	f.uint("podLimitsBytes", limits)
	f.int("podsWithoutLimit", int64(unlimited))
	f.uint("podUsageBytes", use)
	f.text("topPods", strings.Join(top, " "))
}

// podSummary is "; memory of 12 pods: 3 GiB in use, limits 9 GiB, 2 without".
func podSummary(pods []podUse) string {
	if len(pods) == 0 {
		return ""
	}
	limits, use, unlimited := podSums(pods)
	return fmt.Sprintf("; memory of %s: %s in use, limits %s, %d without", display.Count(len(pods), "pod"), display.Bytes(use), display.Bytes(limits), unlimited)
}

func podSums(pods []podUse) (limits, use uint64, unlimited int) {
	for _, p := range pods {
		limits, use = limits+p.limit, use+p.use
		if p.limit == 0 {
			unlimited++
		}
	}
	return limits, use, unlimited
}
