package controller

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// diagnosisPage is how many Diagnoses are read at once. Each takes up to some 200 KiB.
const diagnosisPage = 200

// NewInformer creates the informers of the manager's cache. The informer of Diagnoses never holds
// more than a page of untrimmed ones, even if the API server does not stream them (WatchList,
// Kubernetes 1.34): in one response, tens of thousands take gigabytes.
func NewInformer(from toolscache.ListerWatcher, kind runtime.Object, resync time.Duration, by toolscache.Indexers) toolscache.SharedIndexInformer {
	if _, ok := kind.(*v1alpha1.Diagnosis); ok {
		from = &pages{from}
	}
	return toolscache.NewSharedIndexInformer(from, kind, resync, by)
}

// pages lists Diagnoses a page at a time, each trimmed before the next is read.
type pages struct{ toolscache.ListerWatcher }

// List implements [toolscache.ListerWatcher].
func (p *pages) List(o metav1.ListOptions) (runtime.Object, error) {
	return p.ListWithContext(context.Background(), o)
}

// ListWithContext implements [toolscache.ListerWithContext]. It ignores the requested version and
// returns the newest: only that can be paged.
func (p *pages) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	from := toolscache.ToListerWatcherWithContext(p.ListerWatcher)
	o.ResourceVersion, o.ResourceVersionMatch, o.Limit, o.Continue = "", "", diagnosisPage, ""
	all := &internalversion.List{}
	for {
		answer, err := from.ListWithContext(ctx, o)
		if err != nil {
			return nil, err
		}
		page, ok := answer.(*v1alpha1.DiagnosisList)
		if !ok {
			return nil, fmt.Errorf("list Diagnoses: unexpected answer of type %T", answer)
		}
		for _, d := range page.Items {
			trim(&d)
			all.Items = append(all.Items, &d)
		}
		all.ListMeta = page.ListMeta
		if o.Continue = page.Continue; o.Continue == "" {
			return all, nil
		}
	}
}

// WatchWithContext implements [toolscache.WatcherWithContext].
func (p *pages) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	return toolscache.ToListerWatcherWithContext(p.ListerWatcher).WatchWithContext(ctx, o)
}
