package policy

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// Plan is the complete planned repair, with all inputs.
type Plan struct {
	Diagnosis types.UID
	Node      string
	Steps     []Step
}

// Step is one repair.
type Step struct {
	ID        int    // in the graph
	Operation string // its name
	// Spec is the current Operation: a different script under the same name makes a different plan.
	Spec v1alpha1.OperationSpec
	// Parameters and Results are its inputs: the diagnosis' parameters, and the results of its
	// dependences. Nil and empty are the same.
	Parameters, Results map[string]string
}

// PlanOf returns the plan of one due repair: the node id in the graph that a Diagnosis runs, its
// operation's spec and the results of its dependences (later ones override earlier ones). It uses
// only data that the API has, so that agent and controller compute the same digest.
//
// It fails if a dependence has no results, or truncated ones: nobody can approve a plan that isn't
// shown completely.
func PlanOf(d *v1alpha1.Diagnosis, id int, operation string, spec *v1alpha1.OperationSpec, dependences []int) (*Plan, error) {
	results := map[string]string{}
	for _, dependence := range dependences {
		res := d.Status.Result(dependence)
		switch {
		case res == nil:
			return nil, fmt.Errorf("plan: node %d has no result yet", dependence)
		case res.Truncated:
			return nil, fmt.Errorf("plan: the results of node %d (%s) are too long to be shown whole", dependence, res.Operation)
		}
		maps.Copy(results, res.Values)
	}
	return &Plan{Diagnosis: d.UID, Node: d.Spec.NodeName, Steps: []Step{{
		ID: id, Operation: operation, Spec: *spec.DeepCopy(), Parameters: maps.Clone(d.Spec.Parameters), Results: results,
	}}}, nil
}

// digestForm names the format of the hashed bytes. A changed format needs a new name, or an
// approval of one plan might match another.
const digestForm = "kernosis.io/plan/1"

// Digest returns the hash that an approval is bound to. Any change of the plan changes it.
func (p *Plan) Digest() (v1alpha1.Digest, error) {
	h := sha256.New()
	text(h, digestForm, string(p.Diagnosis), p.Node)
	number(h, len(p.Steps))
	for i := range p.Steps {
		s := &p.Steps[i]
		spec, err := json.Marshal(&s.Spec)
		if err == nil {
			spec, err = declare(spec)
		}
		if err != nil {
			return "", fmt.Errorf("plan: operation %s: %w", s.Operation, err)
		}
		number(h, s.ID)
		text(h, s.Operation, string(spec))
		values(h, s.Parameters)
		values(h, s.Results)
	}
	return v1alpha1.Digest(hex.EncodeToString(h.Sum(nil))), nil
}

func number(h hash.Hash, n int) {
	_, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(n))) // a hash never fails
}

// text hashes texts, each prefixed with its length, so that different lists of texts give different
// bytes.
func text(h hash.Hash, texts ...string) {
	for _, t := range texts {
		number(h, len(t))
		_, _ = h.Write([]byte(t)) // a hash never fails
	}
}

func values(h hash.Hash, m map[string]string) {
	number(h, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		text(h, k, m[k])
	}
}
