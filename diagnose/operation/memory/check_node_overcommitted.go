package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/process"
)

func CheckNodeOvercommitted(h operation.Host) operation.Builtin {
	return operation.Bounded(operation.Builtin{
		Name: "check-node-overcommitted",
		Doc: "Checks whether the node itself is short of memory. Verdict NodeOvercommitted: the OOM kill was global, or available memory is below " +
			"minAvailablePercent. The sum of pod memory limits and the largest pods are evidence, not a condition: limits may exceed the node's memory.",
		Effect: operation.Check,
		Parameters: []operation.Parameter{
			{Name: "oomScope", Doc: "scope of the OOM kill under investigation", Kind: operation.Enum, Default: "unknown", Values: []string{"unknown", "memcg", "global"}},
			{Name: "limitCgroup", Doc: "cgroup whose limit caused an OOM kill; such a kill does not count against the node", Kind: operation.String},
			{Name: "minAvailablePercent", Doc: "share of the node's memory below which it is short", Kind: operation.Integer, Default: "5", Max: 100},
		},
		Results: []operation.Result{
			{Name: "totalBytes", Doc: "the node's memory"},
			{Name: "availableBytes", Doc: "memory available without swapping, as estimated by the kernel"},
			{Name: "swapTotalBytes", Doc: "swap"},
			{Name: "swapFreeBytes", Doc: "free swap"},
			{Name: "slabBytes", Doc: "unreclaimable slab memory"},
			{Name: "committedBytes", Doc: "memory promised to all processes"},
			{Name: "pressureSome10", Doc: "percent of 10 s in which some tasks waited for memory"},
			{Name: "pressureFull10", Doc: "percent in which all of them did"},
			{Name: "pods", Doc: "pods with a memory cgroup"},
			{Name: "podLimitsBytes", Doc: "sum of the pods' memory limits"},
			{Name: "podsWithoutLimit", Doc: "pods without a limit"},
			{Name: "podUsageBytes", Doc: "usage of all pods, without the page cache that is reclaimed first"},
			{Name: "topPods", Doc: "five pods with the largest such usage, by UID"},
			operation.NoteResult(),
		},
		Run: host(h).checkNodeOvercommitted,
	})
}

func (h host) checkNodeOvercommitted(ctx context.Context, call *operation.Call) (operation.Output, error) {
	info, err := h.FS.MemInfo()
	if err != nil {
		return operation.Output{}, fmt.Errorf("read the node's memory: %w", err)
	}
	total, available := info["MemTotal"], info["MemAvailable"]
	if total == 0 {
		return operation.Output{}, fmt.Errorf("%s has no MemTotal", h.FS.Path("/proc/meminfo"))
	}
	f := operation.NewFinding()
	f.Uint("totalBytes", total)
	f.Uint("availableBytes", available)
	f.Uint("swapTotalBytes", info["SwapTotal"])
	f.Uint("swapFreeBytes", info["SwapFree"])
	f.Uint("slabBytes", info["SUnreclaim"])
	f.Uint("committedBytes", info["Committed_AS"])
	if p, err := h.FS.Pressure("memory"); err == nil {
		f.Float("pressureSome10", p.Some)
		f.Float("pressureFull10", p.Full)
	}
	pods, err := h.readPodMemory(ctx)
	if err != nil {
		f.Note("can't determine the pods' memory: %v", err)
	}
	podText := reportPodMemory(f, pods)
	text := fmt.Sprintf("%s of %s available (%d %%)%s", display.Bytes(available), display.Bytes(total), available*100/total, podText)
	scope := call.Parameters["oomScope"]
	if scope == "unknown" && call.Parameters["limitCgroup"] != "" {
		scope = "memcg"
	}
	switch {
	case scope == "global":
		return f.Output(operation.VerdictOf("NodeOvercommitted", "the OOM kill was node-wide; now %s", text)), nil
	case available*100 < total*uint64(call.Parameters.Int("minAvailablePercent")):
		return f.Output(operation.VerdictOf("NodeOvercommitted", "%s", text)), nil
	case scope == "memcg":
		return operation.Output{}, operation.RefutedBy("NodeHasMemory", "the OOM kill was caused by a cgroup's limit; %s", text)
	}
	return operation.Output{}, operation.RefutedBy("NodeHasMemory", "%s", text)
}

// podUse is a pod's memory.
type podUse struct {
	uid   string
	limit uint64 // 0: none
	use   uint64
}

func (h host) readPodMemory(ctx context.Context) (pods []podUse, err error) {
	layout, err := h.FS.CgroupLayout()
	if err != nil {
		return nil, err
	}
	err = h.podGroups(layout, func(group string, o *process.Owner) bool {
		m, err := h.FS.CgroupMemoryUse(layout, group)
		if err == nil { // otherwise the pod has ended
			pods = append(pods, podUse{o.Container.PodUID, m.Limit, m.WorkingSet()})
		}
		return ctx.Err() == nil
	})
	slices.SortFunc(pods, func(a, b podUse) int { return cmp.Or(cmp.Compare(b.use, a.use), cmp.Compare(a.uid, b.uid)) })
	return pods, err
}

// reportPodMemory sets the results about pods, and returns them as "; memory of 12 pods: 3 GiB in use,
// limits 9 GiB, 2 without".
func reportPodMemory(f *operation.Finding, pods []podUse) string {
	var limits, use uint64
	unlimited := 0
	for _, p := range pods {
		limits, use = limits+p.limit, use+p.use
		if p.limit == 0 {
			unlimited++
		}
	}
	var top []string
	for _, p := range pods[:min(len(pods), 5)] {
		top = append(top, p.uid+"="+signedSize(int64(p.use)))
	}
	f.Int("pods", int64(len(pods)))
	f.Uint("podLimitsBytes", limits)
	f.Int("podsWithoutLimit", int64(unlimited))
	f.Uint("podUsageBytes", use)
	f.Text("topPods", strings.Join(top, " "))
	if len(pods) == 0 {
		return ""
	}
	return fmt.Sprintf("; memory of %s: %s in use, limits %s, %d without", display.Count(len(pods), "pod"), display.Bytes(use), display.Bytes(limits), unlimited)
}
