package leader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Served describes kinds that an API server may not serve, such as those of CRDs that are not
// installed yet.
type Served struct {
	Group schema.GroupVersion
	Kinds []string
	Every time.Duration // between checks; 0: 10 s
	// Missing is called once with the kinds that are not served. May be nil.
	Missing func(kinds []string)
	Log     *slog.Logger // nil: none
}

// Part adds a part of the controller to a running manager. What the part has registered elsewhere
// stays until remove is called.
type Part func() (remove func(), err error)

// Register registers a part's metrics until remove is called; if to is nil, it does nothing.
func Register(to prometheus.Registerer, metrics prometheus.Collector) (remove func(), err error) {
	if to == nil {
		return func() {}, nil
	}
	if err := to.Register(metrics); err != nil {
		return nil, err
	}
	return func() { to.Unregister(metrics) }, nil
}

// WhenServed adds parts to a manager once the API server serves the kinds that they watch, this
// process may list them, and it leads. Otherwise a watch of a kind that is missing or forbidden
// would keep the whole manager from starting. An error of a part ends the manager. Call remove
// after the manager has ended; it is safe at any time.
func WhenServed(m manager.Manager, s Served, parts ...Part) (remove func(), err error) {
	api, err := discovery.NewDiscoveryClientForConfigAndClient(m.GetConfig(), m.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("controller: %w", err)
	}
	s.Log = cmp.Or(s.Log, slog.New(slog.DiscardHandler))
	w := &served{Served: s, api: api, reader: m.GetAPIReader(), parts: parts, refused: map[string]bool{}}
	if err := m.Add(manager.RunnableFunc(w.run)); err != nil {
		return nil, fmt.Errorf("controller: %w", err)
	}
	return w.remove, nil
}

// served waits until its kinds are served.
type served struct {
	Served
	api     discovery.DiscoveryInterface
	reader  client.Reader
	parts   []Part
	refused map[string]bool // kinds that can't be listed, which was logged

	mu      sync.Mutex
	removed bool
	removes []func()
}

// run returns when the parts have been added.
func (w *served) run(ctx context.Context) error {
	reported := false
	for {
		missing, err := w.missing()
		switch {
		case err != nil:
			w.Log.Warn("can't determine what the API server serves", "group", w.Group.String(), "error", err)
		case len(missing) == 0 && w.allowed(ctx):
			return w.add()
		case len(missing) == 0:
		case !reported && w.Missing != nil:
			reported = true
			w.Missing(missing)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(cmp.Or(w.Every, 10*time.Second)): // a request for a small list
		}
	}
}

func (w *served) missing() ([]string, error) {
	list, err := w.api.ServerResourcesForGroupVersion(w.Group.String())
	if apierrors.IsNotFound(err) {
		return w.Kinds, nil
	}
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(w.Kinds), func(kind string) bool {
		return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Kind == kind })
	}), nil
}

// allowed reports whether all kinds can be listed, and logs once each kind that can't be.
func (w *served) allowed(ctx context.Context) bool {
	all := true
	for _, kind := range w.Kinds {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(w.Group.WithKind(kind + "List"))
		err := w.reader.List(ctx, list, client.Limit(1))
		if err == nil {
			continue
		}
		all = false
		if !w.refused[kind] && ctx.Err() == nil {
			w.refused[kind] = true
			w.Log.Warn("can't list a kind; it is not handled until that works", "kind", kind, "error", err)
		}
	}
	return all
}

func (w *served) add() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.removed {
		return nil // the manager has ended
	}
	var errs []error
	for _, part := range w.parts {
		remove, err := part()
		errs = append(errs, err)
		if err == nil {
			w.removes = append(w.removes, remove)
		}
	}
	return errors.Join(errs...)
}

func (w *served) remove() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.removed = true
	for _, remove := range w.removes {
		remove()
	}
	w.removes = nil
}
