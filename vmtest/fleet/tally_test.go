package fleet

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kernosis/kernosis/diagnose/api/apitest"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/reporter/kube/leader"
	"github.com/kernosis/kernosis/reporter/kube/lease"
	"github.com/kernosis/kernosis/reporter/kube/liveness"
	"github.com/kernosis/kernosis/vmtest/kubetest"
)

// kind is a kind of object in etcd.
type kind int

const (
	kindNode kind = iota
	kindEvent
	kindLease
	kindDiagnosis
	kindPolicy
	kindServers // Leases of the leader election, and objects of API servers
	kindOther
	kinds
)

func (k kind) String() string {
	return [kinds]string{"Nodes", "Events", "Leases", "Diagnoses", "policies", "servers' own", "other"}[k]
}

// kindOf returns an object's kind from its key in etcd.
func kindOf(key string) kind {
	for prefix, k := range map[string]kind{
		"/registry/minions/": kindNode, "/registry/events/": kindEvent, "/registry/peerserverleases/": kindServers, "/registry/masterleases/": kindServers,
		"/registry/kernosis.io/diagnoses/": kindDiagnosis, "/registry/kernosis.io/remediationpolicies/": kindPolicy,
	} {
		if strings.HasPrefix(key, prefix) {
			return k
		}
	}
	name, lease := strings.CutPrefix(key, "/registry/leases/")
	switch _, name, _ = strings.Cut(name, "/"); {
	case !lease:
		return kindOther
	case name == leader.ElectionName || strings.HasPrefix(name, "apiserver-"):
		return kindServers
	default:
		return kindLease
	}
}

// counts are the writes of one kind of object.
type counts struct {
	Writes int
	Bytes  int64 // of keys and values
	Peak   int   // maximum per second
	second int64
	now    int // writes in that second
}

func (c *counts) add(bytes int, at time.Time) {
	if second := at.Unix(); second != c.second {
		c.second, c.now = second, 0
	}
	c.Writes++
	c.Bytes += int64(bytes)
	c.now++
	c.Peak = max(c.Peak, c.now)
}

// written holds the writes in etcd during a phase.
type written struct {
	Kinds    [kinds]counts
	Repeated [kinds]int     // writes of Nodes, Events, Diagnoses and policies that changed only times
	Silent   int            // agents whose conditions the controller set to Unknown after too long without a renewal
	Longest  time.Duration  // without a renewal, of these
	Spoken   int            // agents that had renewed their Lease, and whose conditions it set nevertheless
	Others   map[string]int // keys of kindOther, without the object's name
	Changed  map[string]int // fields of Diagnoses' status, grouped as written together
}

func newWritten() written { return written{Others: map[string]int{}, Changed: map[string]int{}} }

// tally counts writes in etcd. It is safe for concurrent use.
type tally struct {
	mu      sync.Mutex
	seed    maphash.Seed
	now     written
	meaning map[string]uint64                     // hashes of objects without their times, by key
	moved   map[kind]time.Time                    // when an object of a kind last changed in more than times
	phases  map[string]string                     // of Diagnoses, by key
	waits   map[string]string                     // what each waits for: the reason of its last remediation
	nodes   map[string]string                     // node of each Diagnosis
	status  map[string]map[string]json.RawMessage // last written status of each
	created int                                   // Diagnoses
	repairs map[string]int                        // how often each node was cordoned
	budget  *apitest.BudgetWatch                  // of policyBudget
	known   map[string]bool                       // Diagnoses already returned by ended, by key
	renewed map[string]time.Time                  // when each Lease was last written, by name
	unknown map[string]bool                       // nodes with conditions of a silent agent
	damaged []string
}

func newTally() *tally {
	return &tally{
		seed: maphash.MakeSeed(), meaning: map[string]uint64{}, moved: map[kind]time.Time{}, phases: map[string]string{},
		waits: map[string]string{}, nodes: map[string]string{}, status: map[string]map[string]json.RawMessage{}, repairs: map[string]int{}, budget: apitest.NewBudgetWatch(), known: map[string]bool{}, now: newWritten(),
		renewed: map[string]time.Time{}, unknown: map[string]bool{},
	}
}

// next returns the counts since the last call.
func (t *tally) next() written {
	t.mu.Lock()
	defer t.mu.Unlock()
	last := t.now
	t.now = newWritten()
	return last
}

// note counts one change.
func (t *tally) note(c kubetest.Change, at time.Time) {
	k := kindOf(c.Key)
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(c.Value) == 0 {
		delete(t.meaning, c.Key)
		delete(t.phases, c.Key)
		delete(t.waits, c.Key)
		delete(t.status, c.Key)
		return
	}
	t.now.Kinds[k].add(len(c.Key)+len(c.Value), at)
	var err error
	switch k {
	case kindNode:
		err = t.node(c, at)
	case kindDiagnosis:
		err = t.diagnosis(c, at)
	case kindPolicy:
		err = t.policy(c, at)
	case kindEvent:
		err = t.event(c, at)
	case kindLease:
		t.renewed[path.Base(c.Key)] = at
	case kindOther:
		t.now.Others[c.Key[:strings.LastIndexByte(c.Key, '/')+1]]++
	}
	if err != nil && len(t.damaged) < maxReported {
		t.damaged = append(t.damaged, fmt.Sprintf("%s can't be read: %v", c.Key, err))
	}
}

// maxReported bounds a list of mistakes.
const maxReported = 20

// says records an object's meaning, and counts the write as repeated if it has not changed. The
// caller must hold mu.
func (t *tally) says(k kind, key string, meaning any, at time.Time) error {
	text, err := json.Marshal(meaning)
	if err != nil {
		return err
	}
	sum := maphash.Bytes(t.seed, text)
	if was, ok := t.meaning[key]; ok && was == sum {
		t.now.Repeated[k]++
		return nil
	}
	t.meaning[key], t.moved[k] = sum, at
	return nil
}

func (t *tally) node(c kubetest.Change, at time.Time) error {
	o, _, err := scheme.Codecs.UniversalDeserializer().Decode(c.Value, nil, nil)
	if err != nil {
		return err
	}
	n, ok := o.(*corev1.Node)
	if !ok {
		return fmt.Errorf("it is %T", o)
	}
	n.ManagedFields, n.ResourceVersion = nil, ""
	unknown := false
	for i := range n.Status.Conditions {
		n.Status.Conditions[i].LastHeartbeatTime.Reset()
		unknown = unknown || n.Status.Conditions[i].Reason == "AgentStatusUnknown"
	}
	t.silence(n.Name, unknown, at)
	if t.budget.Node(n) {
		t.repairs[n.Name]++
	}
	return t.says(kindNode, c.Key, n, at)
}

func (t *tally) event(c kubetest.Change, at time.Time) error {
	o, _, err := scheme.Codecs.UniversalDeserializer().Decode(c.Value, nil, nil)
	if err != nil {
		return err
	}
	e, ok := o.(*corev1.Event)
	if !ok {
		return fmt.Errorf("it is %T", o)
	}
	e.ManagedFields, e.ResourceVersion = nil, ""
	e.FirstTimestamp.Reset()
	e.LastTimestamp.Reset()
	e.EventTime.Reset()
	if e.Series != nil {
		e.Series.LastObservedTime.Reset()
	}
	return t.says(kindEvent, c.Key, e, at)
}

func (t *tally) diagnosis(c kubetest.Change, at time.Time) error {
	var d v1alpha1.Diagnosis
	if err := json.Unmarshal(c.Value, &d); err != nil {
		return err
	}
	if c.Version == 1 && d.Spec.OperationSet == setRepair {
		t.created++
	}
	t.phases[c.Key], t.waits[c.Key], t.nodes[c.Key] = string(d.Status.Phase), "", d.Spec.NodeName
	if n := len(d.Status.Remediations); n > 0 {
		if r := d.Status.Remediations[n-1]; r.Verb == v1alpha1.RemediationWait {
			t.waits[c.Key] = r.Reason
		}
	}
	var raw struct{ Status map[string]json.RawMessage }
	if err := json.Unmarshal(c.Value, &raw); err != nil {
		return err
	}
	if fields := changed(t.status[c.Key], raw.Status); fields != "" {
		t.now.Changed[fields]++
	}
	t.status[c.Key] = raw.Status
	d.ManagedFields, d.ResourceVersion = nil, ""
	if d.Status.Checkpoint != nil {
		d.Status.Checkpoint.Time.Reset()
	}
	return t.says(kindDiagnosis, c.Key, &d, at)
}

// changed returns the names of the fields that differ between two objects.
func changed(was, is map[string]json.RawMessage) string {
	var names []string
	for name, value := range is {
		if !bytes.Equal(was[name], value) {
			names = append(names, name)
		}
	}
	for name := range was {
		if _, ok := is[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, "+")
}

// silence notes whether conditions of a node are Unknown because its agent is silent. The caller must
// hold mu.
func (t *tally) silence(node string, unknown bool, at time.Time) {
	was := t.unknown[node]
	t.unknown[node] = unknown
	if was || !unknown {
		return
	}
	// Both writes are seen somewhat later than they were made.
	const late = 5 * time.Second
	if quiet := at.Sub(t.renewed[lease.Name(node)]); quiet < liveness.DefaultSilent-late {
		t.now.Spoken++
	} else {
		t.now.Silent, t.now.Longest = t.now.Silent+1, max(t.now.Longest, quiet)
	}
}

func (t *tally) policy(c kubetest.Change, at time.Time) error {
	var p v1alpha1.RemediationPolicy
	if err := json.Unmarshal(c.Value, &p); err != nil {
		return err
	}
	if p.Name == policyBudget {
		t.budget.Policy(&p)
	}
	p.ManagedFields, p.ResourceVersion = nil, ""
	return t.says(kindPolicy, c.Key, &p, at)
}

// most returns the maximum number of nodes under repair at once, and how many were repaired at all;
// twice lists the nodes that were cordoned more than once.
func (t *tally) most() (most, ever int, twice []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for node, n := range t.repairs {
		if n > 1 {
			twice = append(twice, fmt.Sprintf("%s %d times", node, n))
		}
	}
	return t.budget.MostAll, t.budget.Ever.Len(), twice
}

// diagnoses returns how many were created, how many are in each phase, and how many wait for what.
func (t *tally) diagnoses() (created int, phases, waits map[string]int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	phases, waits = map[string]int{}, map[string]int{}
	for phase := range maps.Values(t.phases) {
		phases[phase]++
	}
	for reason := range maps.Values(t.waits) {
		if reason != "" {
			waits[reason]++
		}
	}
	return t.created, phases, waits
}

// ended returns the nodes of succeeded Diagnoses, each once.
func (t *tally) ended() (nodes []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, phase := range t.phases {
		if phase == string(v1alpha1.PhaseSucceeded) && !t.known[key] {
			t.known[key] = true
			nodes = append(nodes, t.nodes[key])
		}
	}
	return nodes
}

// lastMoved returns when an object of a kind last changed in more than times.
func (t *tally) lastMoved(k kind) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.moved[k]
}

// count returns the number of writes of a kind in the current phase.
func (t *tally) count(k kind) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.now.Kinds[k].Writes
}
