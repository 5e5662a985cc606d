package operation

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/probe/podspec"
)

// PodList returns the built-in pod-list.
func PodList(h Host) Builtin {
	return Builtin{
		Name: "pod-list",
		Doc: "Names the pods of this node, or of these the ones whose UIDs are given, as disk-identity finds them, with their PersistentVolumeClaims. " +
			"pods.txt has all of them. It fails where neither the API server nor kubelet is asked.",
		Effect: Collect,
		Parameters: []Parameter{
			{Name: "affectedPodUIDs", Doc: "UIDs of pods with spaces between; none: all pods", Kind: String},
			{Name: "affectedPods", Doc: "how many these are; 0: no pod is listed", Kind: Integer},
		},
		Results: []Result{
			{"pods", "how many there are"},
			{"podNames", "namespace and name of each, those that are not ready first, as far as they fit"},
			{"claims", "their PersistentVolumeClaims, as far as they fit"},
			{"phases", "how many are in which phase: Pending=1 Running=12"},
			{"notReady", "pods that should take traffic and do not"},
			noteResult(),
		},
		Run: func(ctx context.Context, call *Call) (Output, error) { return h.podList(ctx, call) },
	}
}

func (h Host) podList(ctx context.Context, call *Call) (Output, error) {
	if h.Pods == nil {
		return Output{}, errNoPods
	}
	f := newFinding()
	wanted := strings.Fields(call.Parameters["affectedPodUIDs"])
	if len(wanted) == 0 && call.Parameters["affectedPods"] == "0" {
		f.int("pods", 0)
		return f.output(nil), nil
	}
	list, err := h.Pods.All(ctx)
	if err != nil {
		return Output{}, err
	}
	if len(wanted) > 0 {
		left := wanted
		list = slices.DeleteFunc(list, func(p corev1.Pod) bool {
			uids := podspec.UIDs(&p.ObjectMeta)
			left = slices.DeleteFunc(slices.Clone(left), func(uid string) bool { return slices.Contains(uids, uid) })
			return !slices.ContainsFunc(wanted, func(uid string) bool { return slices.Contains(uids, uid) })
		})
		if len(left) > 0 {
			f.note("this node has no pod with the UID %s", strings.Join(left, " "))
		}
		if n := call.Parameters.Int("affectedPods"); n > int64(len(wanted)) {
			f.note("of %d UIDs only %d are known", n, len(wanted))
		}
	}
	// Who suffers is named, though not all fit.
	slices.SortStableFunc(list, func(a, b corev1.Pod) int {
		return cmp.Or(cmp.Compare(rank(&a), rank(&b)), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	f.podList(list)
	err = f.artifact(call, "pods.txt", func(w *page) {
		tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		netPrintf(tab, "NAMESPACE\tNAME\tUID\tPHASE\tREADY\tRESTARTS\tOWNER\tCLAIMS\n")
		for i := range list {
			p := &list[i]
			netPrintf(tab, "%s\t%s\t%s\t%s\t%t\t%d\t%s\t%s\n", p.Namespace, p.Name, p.UID, p.Status.Phase, podReady(p), podRestarts(p),
				display.Safe(podOwner(p), maxShown), strings.Join(claims(p), " "))
		}
		_ = tab.Flush() // the page keeps its error
	})
	return f.output(nil), err
}

// rank puts pods that do not do what they are for first.
func rank(p *corev1.Pod) int {
	if suffers(p) {
		return 0
	}
	return 1
}

func suffers(p *corev1.Pod) bool {
	return p.Status.Phase != corev1.PodSucceeded && !podReady(p)
}

func (f *finding) podList(list []corev1.Pod) {
	phases := map[corev1.PodPhase]int{}
	var names, volumes []string
	notReady := 0
	for i := range list {
		p := &list[i]
		phases[p.Status.Phase]++
		names = append(names, p.Namespace+"/"+p.Name)
		for _, c := range claims(p) {
			volumes = addOnce(volumes, c)
		}
		if suffers(p) {
			notReady++
		}
	}
	f.int("pods", int64(len(list)))
	f.text("podNames", strings.Join(names, " "))
	f.text("claims", strings.Join(volumes, " "))
	f.int("notReady", int64(notReady))
	var counts []string
	for phase, n := range phases {
		counts = append(counts, fmt.Sprintf("%s=%d", phase, n))
	}
	slices.Sort(counts)
	f.text("phases", strings.Join(counts, " "))
}
