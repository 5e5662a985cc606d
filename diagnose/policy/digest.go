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

// Plan is what would be repaired, whole: all that the repairs are given.
type Plan struct {
	Diagnosis types.UID
	Node      string
	Steps     []Step
}

// Step is one repair.
type Step struct {
	ID        int    // of the graph's node
	Operation string // its name
	// Spec is the Operation as it is now: another script under the same name is another
	// plan.
	Spec v1alpha1.OperationSpec
	// Parameters and Results are what it will be given: the diagnosis' parameters, and the
	// results of its dependences. None and an empty one are the same.
	Parameters, Results map[string]string
}

// digestForm names the form of what is hashed. Another form needs another name: else an
// approval of one plan might be taken for one of another.
const digestForm = "kernosis.io/plan/1"

// Digest returns what an approval of the plan is bound to. Any change of what is in the
// plan changes it.
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
	_, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(n))) // a hash takes all
}

// text hashes texts, each behind its length: no two lists of texts are the same bytes.
func text(h hash.Hash, texts ...string) {
	for _, t := range texts {
		number(h, len(t))
		_, _ = h.Write([]byte(t)) // a hash takes all
	}
}

func values(h hash.Hash, m map[string]string) {
	number(h, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		text(h, k, m[k])
	}
}
