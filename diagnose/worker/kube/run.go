package kube

import (
	"context"
	"errors"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/worker"
	"github.com/kernosis/kernosis/reporter/kube/conditions"
)

// Run implements [worker.Store]. It may be called once, and returns nil when ctx ends.
func (s *Store) Run(ctx context.Context, h worker.Handler) error {
	if s.running.Swap(true) {
		return errors.New("diagnoses by the API: the store is already running")
	}
	// The account logs errors, once.
	ctx = klog.NewContext(ctx, logr.Discard())
	news := func() { s.news(h) }
	var all sync.WaitGroup
	all.Go(func() { s.save(ctx.Done()) })
	first := objectsFeed(s.operations, trimOperation, news)
	first.denied = func(o conditions.Outcome) {
		if o == KindMissing { // the CRDs come together
			s.sets.settle()
			s.triggers.settle()
		}
		if s.operations.settle() {
			news()
		}
	}
	all.Go(func() {
		follow(ctx, s.api, operations, "", &v1alpha1.OperationList{}, &v1alpha1.Operation{}, first)
	})
	// While the CRDs are missing, one request at a time is enough, because a whole fleet asks.
	if !await(ctx, s.account.served) {
		all.Wait()
		return nil
	}
	all.Go(func() {
		follow(ctx, s.api, operationSets, "", &v1alpha1.OperationSetList{}, &v1alpha1.OperationSet{},
			objectsFeed(s.sets, trimSet, news))
	})
	all.Go(func() {
		follow(ctx, s.api, triggers, "", &v1alpha1.TriggerList{}, &v1alpha1.Trigger{},
			objectsFeed(s.triggers, trimTrigger, news))
	})
	all.Go(func() {
		if !await(ctx, s.operations.synced, s.sets.synced) {
			return
		}
		t := &reporter{
			known: s.diagnoses, h: h, reported: make(map[types.NamespacedName]lastReported),
			prepare: func(d *v1alpha1.Diagnosis) {
				s.lookUp(ctx, d, news)
				// Saved so that the next agent, if this one is killed now, continues with the same
				// set.
				s.saveNow()
			},
		}
		follow(ctx, s.api, diagnoses, ofNode(s.config.Node), &v1alpha1.DiagnosisList{}, &v1alpha1.Diagnosis{}, t.feed())
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
