package kube

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

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
		trimDiagnosis(made)
		if made.Spec.NodeName == s.config.Node {
			s.diagnoses.learn(kept(made))
		}
		return made, nil
	}
	return nil, s.explain(ctx, "create Diagnosis "+client.ObjectKeyFromObject(d).String(), err)
}
