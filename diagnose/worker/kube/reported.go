package kube

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/worker"
	"github.com/kernosis/kernosis/reporter/kube/conditions"
)

// reporter notifies the worker of the node's Diagnoses, once per version.
type reporter struct {
	known *mirror[*v1alpha1.Diagnosis]
	h     worker.Handler
	// prepare makes sure that the objects a new Diagnosis needs are known and saved.
	prepare  func(d *v1alpha1.Diagnosis)
	reported map[types.NamespacedName]lastReported
}

// lastReported is the version of which the worker was notified last.
type lastReported struct {
	uid     types.UID
	version string
}

func (r *reporter) feed() *feed[*v1alpha1.Diagnosis] {
	m := r.known
	return &feed[*v1alpha1.Diagnosis]{
		changed: func(d *v1alpha1.Diagnosis) {
			if _, _, news := m.take(kept(d)); news {
				r.changed(d)
			}
		},
		gone: func(d *v1alpha1.Diagnosis) {
			m.drop(d)
			if last, ok := r.reported[client.ObjectKeyFromObject(d)]; ok && last.uid == d.UID {
				r.delete(client.ObjectKeyFromObject(d))
			}
		},
		replaced: func(list []*v1alpha1.Diagnosis, version string) {
			short := make([]*v1alpha1.Diagnosis, len(list))
			for i, d := range list {
				short[i] = kept(d)
			}
			m.replace(short, version)
			r.replaced(list)
		},
		denied: func(conditions.Outcome) {},
	}
}

func (r *reporter) changed(d *v1alpha1.Diagnosis) {
	name := client.ObjectKeyFromObject(d)
	last, known := r.reported[name]
	if known && last.uid == d.UID && last.version == d.ResourceVersion {
		return
	}
	if known && last.uid != d.UID {
		r.delete(name)
		known = false
	}
	if !known && !d.Status.Completed() {
		r.prepare(d)
	}
	r.reported[name] = lastReported{d.UID, d.ResourceVersion}
	r.h.Diagnosis(d)
}

func (r *reporter) delete(name types.NamespacedName) {
	key := worker.Key{NamespacedName: name, UID: r.reported[name].uid}
	delete(r.reported, name)
	r.h.Gone(key)
}

// replaced reports all changes that were missed without a watch.
func (r *reporter) replaced(list []*v1alpha1.Diagnosis) {
	there := make(map[types.NamespacedName]types.UID, len(list))
	for _, d := range list {
		there[client.ObjectKeyFromObject(d)] = d.UID
	}
	for name, last := range r.reported {
		if there[name] != last.uid {
			r.delete(name)
		}
	}
	// They are run in the order of their creation.
	slices.SortStableFunc(list, func(a, b *v1alpha1.Diagnosis) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	for _, d := range list {
		r.changed(d)
	}
}

// kept returns the part of a Diagnosis to keep in memory. For an ended one it omits the results,
// which are most of it; before an ended one is written, it is read again.
func kept(d *v1alpha1.Diagnosis) *v1alpha1.Diagnosis {
	if !d.Status.Completed() {
		return d
	}
	short := *d
	short.Spec.Parameters = nil
	short.Status = v1alpha1.DiagnosisStatus{Conditions: d.Status.Conditions, Phase: d.Status.Phase}
	return &short
}
