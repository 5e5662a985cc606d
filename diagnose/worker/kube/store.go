package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/kernosis/kernosis/collector/statefile"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/worker"
	"github.com/kernosis/kernosis/reporter/kube/conditions"
)

// Config configures a Store.
type Config struct {
	// REST is how to reach the API server. Its rate limits apply to Create and Write; watches are
	// not limited.
	REST *rest.Config
	Node string // whose Diagnoses are watched
	Dir  string // folder of the last known objects; created if missing
	// Builtin reports whether an operation name of an OperationSet is a built-in and needs no
	// Operation; nil: none is.
	Builtin func(name string) bool
	// Timeout is for one request; 0: 5 s, which is long for a server that answers, and short for a
	// waiting worker. Create and Write give up after three times that.
	Timeout time.Duration
	// Settle is how long after an outage a Forbidden of the API server is not trusted; 0: 30 s,
	// several times what a server needs to load its roles after it begins to listen.
	Settle time.Duration
	// MaxSaved bounds the file of the last known objects, in bytes; 0: 16 MiB, for 2000 sets of 50 nodes.
	MaxSaved int
	Log      *slog.Logger // nil: no log
}

// savedFile is the name of the file of the last known objects.
const savedFile = "objects.json"

// Store is created by [New]. It is safe for concurrent use.
type Store struct {
	config  Config
	api     *api
	account *account
	file    statefile.File

	operations *mirror[*v1alpha1.Operation]
	sets       *mirror[*v1alpha1.OperationSet]
	triggers   *mirror[*v1alpha1.Trigger]
	diagnoses  *mirror[*v1alpha1.Diagnosis]

	changing sync.Mutex // serializes the handling of changed objects
	objects  atomic.Pointer[worker.Objects]

	saving  sync.Mutex
	dirty   atomic.Bool   // objects differ from the file
	unsaved chan struct{} // signals dirty
}

// New returns a Store with the objects saved by the previous process. It sends no requests.
func New(c Config) (*Store, error) {
	if c.REST == nil || c.Node == "" || c.Dir == "" {
		return nil, errors.New("diagnoses by the API: the API server, the node and a folder are needed")
	}
	c.Timeout, c.Settle = cmp.Or(c.Timeout, 5*time.Second), cmp.Or(c.Settle, 30*time.Second)
	c.MaxSaved = cmp.Or(c.MaxSaved, 16<<20)
	if c.Builtin == nil {
		c.Builtin = func(string) bool { return false }
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("diagnoses by the API: %w", err)
	}
	s := &Store{
		config: c, account: newAccount(c.Log, c.Settle), unsaved: make(chan struct{}, 1),
		file:       statefile.File{Path: filepath.Join(c.Dir, savedFile), Durable: true, Max: c.MaxSaved},
		operations: newMirror[*v1alpha1.Operation](), sets: newMirror[*v1alpha1.OperationSet](),
		triggers: newMirror[*v1alpha1.Trigger](), diagnoses: newMirror[*v1alpha1.Diagnosis](),
	}
	var err error
	if s.api, err = newAPI(c.REST, c.Timeout, s.account); err != nil {
		return nil, fmt.Errorf("diagnoses by the API: %w", err)
	}
	s.load()
	return s, nil
}

// Run implements [worker.Store]. It may be called once, and returns nil when ctx ends.
func (s *Store) Run(ctx context.Context, h worker.Handler) error {
	// The account logs errors, once.
	ctx = klog.NewContext(ctx, logr.Discard())
	news := func() { s.news(h) }
	var all sync.WaitGroup
	all.Go(func() { s.save(ctx.Done()) })
	first := objectsFeed(s.operations, news)
	first.denied = func(o conditions.Outcome) {
		if o == KindMissing { // the CRDs come together
			s.sets.settle()
			s.triggers.settle()
		}
		if s.operations.settle() {
			news()
		}
	}
	all.Go(func() { follow(ctx, s.api, operations, "", &v1alpha1.OperationList{}, &v1alpha1.Operation{}, first) })
	// While the CRDs are missing, one request at a time is enough, because a whole fleet asks.
	if !await(ctx, s.account.served) {
		all.Wait()
		return nil
	}
	all.Go(func() {
		follow(ctx, s.api, operationSets, "", &v1alpha1.OperationSetList{}, &v1alpha1.OperationSet{}, objectsFeed(s.sets, news))
	})
	all.Go(func() {
		follow(ctx, s.api, triggers, "", &v1alpha1.TriggerList{}, &v1alpha1.Trigger{}, objectsFeed(s.triggers, news))
	})
	all.Go(func() {
		if !await(ctx, s.operations.synced, s.sets.synced) {
			return
		}
		t := &reporter{
			known: s.diagnoses, h: h, reported: make(map[types.NamespacedName]lastReported),
			prepare: func(d *v1alpha1.Diagnosis) {
				s.lookUp(ctx, d, news)
				s.saveNow() // so that the next agent, if this one is killed now, continues with the same set
			},
		}
		ofNode := fields.OneTermEqualSelector("spec.nodeName", s.config.Node).String()
		follow(ctx, s.api, diagnoses, ofNode, &v1alpha1.DiagnosisList{}, &v1alpha1.Diagnosis{}, t.feed())
	})
	all.Wait()
	return nil
}

// news handles changed objects. It notifies the worker only once the API server has answered for
// each kind: if the worker learned of a trigger a moment later, the trigger would miss its problem.
func (s *Store) news(h worker.Handler) {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.rebuild()
	s.dirty.Store(true)
	select {
	case s.unsaved <- struct{}{}:
	default:
	}
	for _, known := range []<-chan struct{}{s.operations.settled, s.sets.settled, s.triggers.settled} {
		select {
		case <-known:
		default:
			return
		}
	}
	h.ObjectsChanged()
}

// await blocks until all are closed; false: ctx has ended first.
func await(ctx context.Context, all ...<-chan struct{}) bool {
	for _, one := range all {
		select {
		case <-one:
		case <-ctx.Done():
			return false
		}
	}
	return true
}
