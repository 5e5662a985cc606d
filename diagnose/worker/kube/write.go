package kube

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/worker"
	"github.com/kernosis/kernosis/reporter/kube/conditions"
)

// Write implements [worker.Store]. It sends a merge patch of the changes with the resourceVersion
// that they were made for, so others' writes are never overwritten.
func (s *Store) Write(ctx context.Context, key worker.Key, change func(*v1alpha1.DiagnosisStatus)) (*v1alpha1.Diagnosis, error) {
	bounded, cancel := context.WithTimeout(ctx, patience*s.config.Timeout)
	defer cancel()
	what := "write Diagnosis " + key.String()
	var conflict error
	for try := range maxTries {
		base, known := s.diagnoses.get(key.NamespacedName)
		// Of an ended one only a part is kept here.
		if try > 0 || !known || base.UID != key.UID || base.Status.Completed() {
			var err error
			if base, err = s.read(bounded, key); err != nil {
				return nil, s.Explain(ctx, what, err)
			}
		}
		next := base.DeepCopy()
		change(&next.Status)
		patch, err := patchOf(base, next)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
		if patch == nil {
			return base, nil
		}
		out, err := s.api.patchStatus(bounded, key.NamespacedName, patch)
		switch outcomeOf(err) {
		case Done:
			trim(out)
			s.diagnoses.update(kept(out))
			return out, nil
		case conditions.Conflict:
			conflict = err
			// A random time that grows, so that two concurrent writers don't conflict each time.
			select {
			case <-time.After(rand.N(5 * time.Millisecond << try)):
			case <-bounded.Done():
			}
		case NotFound:
			s.diagnoses.forget(key.NamespacedName, key.UID)
			return nil, fmt.Errorf("%s: %w", what, worker.ErrGone)
		default:
			return nil, s.explain(ctx, what, err)
		}
	}
	return nil, fmt.Errorf("%s: others changed it %d times in the meantime: %w", what, maxTries, &requestError{err: conflict, away: true})
}

// read reads a Diagnosis from the API server, or returns worker.ErrGone.
func (s *Store) read(ctx context.Context, key worker.Key) (*v1alpha1.Diagnosis, error) {
	d := &v1alpha1.Diagnosis{}
	err := s.api.get(ctx, diagnoses, key.NamespacedName, d)
	if outcomeOf(err) == NotFound || err == nil && d.UID != key.UID {
		s.diagnoses.forget(key.NamespacedName, key.UID)
		return nil, worker.ErrGone
	}
	if err != nil {
		return nil, err
	}
	trim(d)
	s.diagnoses.update(kept(d))
	return d, nil
}

// patchOf returns the patch from base to next, with base's resourceVersion; nil: they are the same
// once stored.
func patchOf(base, next *v1alpha1.Diagnosis) ([]byte, error) {
	if difference, err := client.MergeFrom(base).Data(next); err != nil || string(difference) == "{}" {
		return nil, err
	}
	return client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}).Data(next)
}

const (
	// patience is the timeout of a whole Create or Write, in multiples of the request timeout.
	patience = 3
	// maxTries is how often it starts over after a conflict. Only the controller and people write
	// besides the agent.
	maxTries = 8
)

// Create implements [worker.Store].
func (s *Store) Create(ctx context.Context, d *v1alpha1.Diagnosis) (*v1alpha1.Diagnosis, error) {
	bounded, cancel := context.WithTimeout(ctx, patience*s.config.Timeout)
	defer cancel()
	var err error
	for range maxTries {
		var made *v1alpha1.Diagnosis
		made, err = s.api.create(bounded, d)
		if outcomeOf(err) == Exists {
			made = &v1alpha1.Diagnosis{}
			err = s.api.get(bounded, diagnoses, client.ObjectKeyFromObject(d), made)
			if outcomeOf(err) == NotFound {
				continue // deleted in between
			}
		}
		if err != nil {
			break
		}
		trim(made)
		if made.Spec.NodeName == s.config.Node {
			s.diagnoses.learn(kept(made))
		}
		return made, nil
	}
	return nil, s.explain(ctx, "create Diagnosis "+client.ObjectKeyFromObject(d).String(), err)
}
