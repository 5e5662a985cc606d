package pod

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/pods"
	"github.com/kernosis/kernosis/diagnose/operation"
)

func PodList(h operation.Host) operation.Builtin {
	return operation.Builtin{
		Name: "pod-list",
		Doc: "Lists the pods of this node, or those of the given UIDs (from disk-identity), with their PersistentVolumeClaims. Artifact pods.txt has all " +
			"of them. Fails without an API server or kubelet to query.",
		Effect: operation.Collect,
		Parameters: []operation.Parameter{
			{Name: "affectedPodUIDs", Doc: "pod UIDs, separated by spaces; none: all pods", Kind: operation.String},
			{Name: "affectedPods", Doc: "their number; 0: list no pod", Kind: operation.Integer},
		},
		Results: []operation.Result{
			{Name: "pods", Doc: "number of pods"},
			{Name: "podNames", Doc: "namespace and name of each, not ready ones first, as far as they fit"},
			{Name: "claims", Doc: "their PersistentVolumeClaims, as far as they fit"},
			{Name: "phases", Doc: "pods by phase: Pending=1 Running=12"},
			{Name: "notReady", Doc: "pods that should receive traffic and do not"},
			operation.NoteResult(),
		},
		Run: host(h).podList,
	}
}

func (h host) podList(ctx context.Context, call *operation.Call) (operation.Output, error) {
	if h.Pods == nil {
		return operation.Output{}, errNoPods
	}
	f := operation.NewFinding()
	wanted := strings.Fields(call.Parameters["affectedPodUIDs"])
	if len(wanted) == 0 && call.Parameters["affectedPods"] == "0" {
		f.Int("pods", 0)
		return f.Output(nil), nil
	}
	list, err := h.Pods.All(ctx)
	if err != nil {
		return operation.Output{}, err
	}
	if len(wanted) > 0 {
		left := wanted
		list = slices.DeleteFunc(list, func(p corev1.Pod) bool {
			uids := pods.UIDs(&p.ObjectMeta)
			left = slices.DeleteFunc(slices.Clone(left), func(uid string) bool { return slices.Contains(uids, uid) })
			return !slices.ContainsFunc(wanted, func(uid string) bool { return slices.Contains(uids, uid) })
		})
		if len(left) > 0 {
			f.Note("this node has no pod with the UID %s", strings.Join(left, " "))
		}
		if n := call.Parameters.Int("affectedPods"); n > int64(len(wanted)) {
			f.Note("of %d UIDs only %d are given", n, len(wanted))
		}
	}
	// List pods that are not ready first, because not all may fit.
	slices.SortStableFunc(list, func(a, b corev1.Pod) int {
		return cmp.Or(cmp.Compare(rank(&a), rank(&b)), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	reportPodList(f, list)
	err = f.Artifact(call, "pods.txt", func(w *operation.Page) {
		tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		rows := &operation.Page{Writer: tab}
		rows.Printf("NAMESPACE\tNAME\tUID\tPHASE\tREADY\tRESTARTS\tOWNER\tCLAIMS\n")
		for i := range list {
			p := &list[i]
			rows.Printf("%s\t%s\t%s\t%s\t%t\t%d\t%s\t%s\n", p.Namespace, p.Name, p.UID, p.Status.Phase, podReady(p), podRestarts(p),
				display.Safe(podOwner(p), operation.MaxShown), strings.Join(claims(p), " "))
		}
		_ = tab.Flush() // the page keeps the error
	})
	return f.Output(nil), err
}

// rank returns a sort key: pods that should be ready and are not come first.
func rank(p *corev1.Pod) int {
	if suffers(p) {
		return 0
	}
	return 1
}

func suffers(p *corev1.Pod) bool {
	return p.Status.Phase != corev1.PodSucceeded && !podReady(p)
}

func reportPodList(f *operation.Finding, list []corev1.Pod) {
	phases := map[corev1.PodPhase]int{}
	var names, volumes []string
	notReady := 0
	for i := range list {
		p := &list[i]
		phases[p.Status.Phase]++
		names = append(names, p.Namespace+"/"+p.Name)
		for _, c := range claims(p) {
			volumes = operation.AddOnce(volumes, c)
		}
		if suffers(p) {
			notReady++
		}
	}
	f.Int("pods", int64(len(list)))
	f.Text("podNames", strings.Join(names, " "))
	f.Text("claims", strings.Join(volumes, " "))
	f.Int("notReady", int64(notReady))
	f.Text("phases", operation.Counts(phases))
}
