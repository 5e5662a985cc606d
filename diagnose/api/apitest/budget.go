package apitest

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// BudgetWatch records the maximum number of nodes that were cordoned, and that had a slot of a
// policy, over all versions of nodes and policy passed to it. Its caller must synchronize access.
type BudgetWatch struct {
	Ever      sets.Set[string] // nodes that were ever cordoned
	Most      int              // most nodes cordoned at once
	MostSlots int
	MostAll   int // most nodes cordoned or with a slot

	cordoned, slots sets.Set[string]
}

// NewBudgetWatch returns an empty BudgetWatch.
func NewBudgetWatch() *BudgetWatch {
	return &BudgetWatch{Ever: sets.New[string](), cordoned: sets.New[string](), slots: sets.New[string]()}
}

// Node records a version of a node, and reports whether this version newly cordons it.
func (w *BudgetWatch) Node(n *corev1.Node) (cordoned bool) {
	was := w.cordoned.Has(n.Name)
	w.cordoned.Delete(n.Name)
	if n.Spec.Unschedulable {
		w.cordoned.Insert(n.Name)
		w.Ever.Insert(n.Name)
	}
	w.measure()
	return n.Spec.Unschedulable && !was
}

// Policy records a version of the policy.
func (w *BudgetWatch) Policy(p *v1alpha1.RemediationPolicy) {
	w.slots = sets.New[string]()
	for _, r := range p.Status.Repairs {
		if r.EndTime == nil {
			w.slots.Insert(r.Node)
		}
	}
	w.measure()
}

func (w *BudgetWatch) measure() {
	w.Most, w.MostSlots = max(w.Most, len(w.cordoned)), max(w.MostSlots, len(w.slots))
	w.MostAll = max(w.MostAll, len(w.cordoned.Union(w.slots)))
}
