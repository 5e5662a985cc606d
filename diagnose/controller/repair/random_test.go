package repair

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/catalog"
	"github.com/kernosis/kernosis/diagnose/policy"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// seed repeats one run for debugging.
var seed = flag.Uint64("seed", 0, "the run of TestRandomRunsOfTwoControllers to repeat")

const randomLabel = "example.org/state"

// world is one run: a store, two controllers that both believe they lead, agents, persons, and a
// scheduler. One goroutine runs at a time, and time advances only when all wait, so that a seed
// determines the run.
type world struct {
	*testing.T
	r      *rand.Rand
	store  *store
	agents *agents
	both   []*controlled
	log    []string

	limits  map[string]int    // of policies: nodes at once
	persons map[string]bool   // nodes that a person has cordoned
	labels  map[string]string // values set by persons
	made    map[string]int    // by diagnosis and step: how often it was made
}

// controlled is a controller's process with its workers.
type controlled struct {
	process
	r       *reconciler
	workers []*task
	cut     bool // its calls fail
	lives   int
}

// task is what a worker does; nil: nothing.
type task struct {
	hand
	key  string
	done chan struct{}
	end  context.CancelFunc
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		T: t, r: rand.New(rand.NewPCG(seed, 0)), store: &store{objects: map[string]client.Object{}},
		limits: map[string]int{}, persons: map[string]bool{}, labels: map[string]string{}, made: map[string]int{},
	}
	nodes := 3 + w.r.IntN(6)
	for i := range nodes {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i), Labels: map[string]string{"pool": pick(w.r, "a", "a", "b")}}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
		w.store.create(n)
	}
	for i := range 1 + w.r.IntN(2) {
		w.policy(i, nodes)
	}
	for _, b := range []v1alpha1.Builtin{
		{Name: "label-node", Parameters: map[string]string{"key": randomLabel, "value": "sick"}},
		{Name: "unlabel-node", Parameters: map[string]string{"key": randomLabel}},
		{Name: "annotate-node", Parameters: map[string]string{"key": randomLabel, "value": "sick"}},
		{Name: "unannotate-node", Parameters: map[string]string{"key": randomLabel}},
		{Name: "taint", Parameters: map[string]string{"key": randomLabel, "effect": "NoSchedule"}},
		{Name: "untaint", Parameters: map[string]string{"key": randomLabel, "effect": "NoSchedule"}},
	} {
		o := &v1alpha1.Operation{ObjectMeta: metav1.ObjectMeta{Name: "x-" + b.Name}}
		o.Spec.Processor.Builtin = &b
		w.store.create(o)
	}
	sets := [][]string{{"cordon"}, {"cordon", "uncordon"}, {"cordon", "restart-unit", "uncordon"}, {"x-label-node", "x-unlabel-node"}, {"x-label-node", "cordon"}, {"restart-unit"},
		{"x-annotate-node", "x-unannotate-node"}, {"x-taint", "cordon", "x-untaint"}}
	for i, operations := range sets {
		s := &v1alpha1.OperationSet{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("set%d", i)}}
		s.Spec.AdjacencyList = []v1alpha1.Node{{ID: 0, To: []int32{1}}}
		for i, o := range operations {
			n := v1alpha1.Node{ID: int32(i + 1), Operation: o}
			if i+1 < len(operations) {
				n.To = []int32{int32(i + 2)}
			}
			s.Spec.AdjacencyList = append(s.Spec.AdjacencyList, n)
		}
		w.store.create(s)
	}
	for i := range 2 + w.r.IntN(nodes+2) {
		d := &v1alpha1.Diagnosis{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("d%d", i), Namespace: "system"}}
		d.Spec = v1alpha1.DiagnosisSpec{NodeName: fmt.Sprintf("n%d", w.r.IntN(nodes)), OperationSet: fmt.Sprintf("set%d", w.r.IntN(len(sets))), Parameters: v1alpha1.Parameters{"unit": "kubelet"}}
		d.Status.Problem = &v1alpha1.Problem{State: v1alpha1.ProblemLasts, Since: metav1.NowMicro()}
		w.store.create(d)
	}
	persons := &process{store: w.store}
	w.agents = &agents{b: &bench{T: t, client: &memory{process: persons}, system: "system"}, built: catalog.All(operation.Host{}), known: map[string]*v1alpha1.Operation{}, sets: map[string]*v1alpha1.OperationSet{}}
	w.store.seen = w.see
	for i := range 2 {
		c := &controlled{process: process{store: w.store}}
		for range 2 {
			c.workers = append(c.workers, nil)
		}
		w.both = append(w.both, c)
		w.start(c, fmt.Sprintf("c%d", i))
	}
	return w
}

func (w *world) policy(i, nodes int) {
	most, percent := int32(1+w.r.IntN(3)), pick[int32](w.r, 100, 50, 34)
	p := &v1alpha1.RemediationPolicy{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("p%d", i)}, Spec: v1alpha1.RemediationPolicySpec{
		Mode: v1alpha1.ModeEnforce, Budget: v1alpha1.Budget{MaxNodes: &most, MaxPercent: &percent},
		PauseWhenUnhealthyPercent: pick[int32](w.r, 100, 50), CooldownPerNode: &metav1.Duration{Duration: pick(w.r, 0, 10*time.Second, 5*time.Minute)},
		VerifyWithin: metav1.Duration{Duration: pick(w.r, time.Second, 10*time.Second, time.Minute)},
	}}
	base := nodes
	if i > 0 {
		p.Spec.NodeSelector.MatchLabels = map[string]string{"pool": "a"}
		base = 0
		for _, o := range w.store.objects {
			if n, ok := o.(*corev1.Node); ok && n.Labels["pool"] == "a" {
				base++
			}
		}
	}
	if w.r.IntN(4) == 0 {
		p.Spec.MaintenanceWindows = []v1alpha1.MaintenanceWindow{{Schedule: "*/4 * * * *", Duration: metav1.Duration{Duration: 2 * time.Minute}}}
	}
	w.limits[p.Name] = min(int(most), max(1, base*int(percent)/100))
	w.store.create(p)
}

// start starts a controller without any memory of the previous one.
func (w *world) start(c *controlled, name string) {
	c.lives++
	c.name, c.dead, c.cut = name, false, false
	c.cache = maps.Clone(w.store.objects)
	p := &process{name: name, store: w.store, cache: c.cache}
	c.process = *p
	config := &Config{Namespace: "system", Holder: name, Log: slog.New(slog.DiscardHandler)}
	if err := config.setDefaults(); err != nil {
		w.Fatal(err)
	}
	api := &memoryAPI{p: &c.process}
	actions, err := NewActions(api, *config)
	if err != nil {
		w.Fatal(err)
	}
	live := &memory{process: &c.process}
	c.r = &reconciler{
		config: config, client: &memory{process: &c.process, cached: true}, live: live, actions: actions,
		builtins: w.agents.built, counts: newCounts(), reporter: &reporter{recorder: silent{}},
		interest: map[types.NamespacedName]interest{}, inputs: map[types.NamespacedName]inputs{}, contests: map[types.UID]contest{}, reported: map[string]reported{},
		budget: &policy.Budget{Reader: live, Writer: live.Status(), Holder: name, Now: time.Now},
	}
	c.r.budget.TakenOver = c.r.takenOver
}

func (w *world) note(format string, args ...any) {
	w.log = append(w.log, time.Now().UTC().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

func (w *world) breaks(format string, args ...any) {
	w.note("BROKEN: "+format, args...)
	w.Errorf(format, args...)
}

// see checks each write.
func (w *world) see(by string, old, now client.Object) {
	switch now := now.(type) {
	case *v1alpha1.RemediationPolicy:
		w.seePolicy(by, old.(*v1alpha1.RemediationPolicy), now)
	case *corev1.Node:
		w.seeNode(by, old.(*corev1.Node), now)
	case *v1alpha1.Diagnosis:
		for _, r := range now.Status.Remediations {
			state := ""
			had := old.(*v1alpha1.Diagnosis).Status.Remediation(int(r.ID))
			if r.Verb == v1alpha1.RemediationRun && r.Outcome == nil && (had == nil || had.Verb != r.Verb) {
				n := &corev1.Node{}
				if err := w.store.get(client.ObjectKey{Name: now.Spec.NodeName}, n); err != nil {
					w.Fatal(err)
				}
				for name := range w.limits {
					w.holdsSlot(by, name, n, now.UID, "grant")
				}
			}
			if r.Outcome != nil {
				state = string(r.Outcome.State)
			}
			w.note("%s: %s %s: %d %s %s %s", by, now.Name, now.Status.Phase, r.ID, r.Verb, r.Reason, state)
		}
	}
}

// seePolicy checks that a policy never has more slots than its budget, nor two of a node.
func (w *world) seePolicy(by string, old, now *v1alpha1.RemediationPolicy) {
	open, before := map[string]bool{}, map[string]bool{}
	nodes := map[string]bool{}
	for _, r := range now.Status.Repairs {
		if nodes[r.Node] {
			w.breaks("%s: policy %s has two entries of node %s", by, now.Name, r.Node)
		}
		nodes[r.Node] = true
		if r.EndTime == nil {
			open[r.Node] = true
		}
	}
	for _, r := range old.Status.Repairs {
		if r.EndTime == nil {
			before[r.Node] = true
		}
	}
	w.note("%s: %s: slots of %v", by, now.Name, keys(open))
	if len(open) > len(before) && len(open) > w.limits[now.Name] {
		w.breaks("%s: policy %s has %d slots of %d taken", by, now.Name, len(open), w.limits[now.Name])
	}
}

// seeNode checks that never more nodes are changed than the budget allows, no change is made twice,
// and only Kernosis' own changes are undone.
func (w *world) seeNode(by string, old, now *corev1.Node) {
	w.note("%s: %s: cordoned %v label %q acts %s", by, now.Name, now.Spec.Unschedulable, now.Labels[randomLabel], now.Annotations[policy.AnnotationActs])
	if by == "" {
		return // persons may do all
	}
	had, has := w.acts(old), w.acts(now)
	for _, a := range has {
		if slices.ContainsFunc(had, func(b policy.Act) bool { return b.Diagnosis == a.Diagnosis && b.String() == a.String() }) {
			continue
		}
		step := string(a.Diagnosis) + " " + a.String()
		w.made[step]++
		if !w.underWay(a.Diagnosis) {
			w.breaks("%s: %s on %s, which is not under way", by, step, now.Name)
		}
		// A cordon or taint with an unknown result is repeated if it is missing.
		if w.made[step] > 1 && (a.Kind == policy.KindLabel || a.Kind == policy.KindAnnotation) {
			w.breaks("%s: %s was made twice on %s", by, step, now.Name)
		}
		for name := range w.limits {
			w.holdsSlot(by, name, now, a.Diagnosis, a.String())
		}
	}
	if old.Spec.Unschedulable && !now.Spec.Unschedulable && w.persons[now.Name] {
		w.breaks("%s: a person's cordon of %s was taken back", by, now.Name)
	}
	if was, is := old.Labels[randomLabel], now.Labels[randomLabel]; was != is && is != "sick" && is != w.labels[now.Name] {
		w.breaks("%s: label of %s is %q, and was %q before Kernosis set it", by, now.Name, is, w.labels[now.Name])
	}
	if was, is := old.Labels[randomLabel], now.Labels[randomLabel]; was != is && is != "sick" && was == w.labels[now.Name] {
		w.breaks("%s: a person's label of %s was taken back", by, now.Name)
	}
	if now.Spec.Unschedulable && !old.Spec.Unschedulable {
		for name, limit := range w.limits {
			if out := w.ours(name); len(out) > limit {
				w.breaks("%s: policy %s: Kernosis has cordoned %v, %d may be", by, name, out, limit)
			}
		}
	}
}

// underWay reports whether a Diagnosis has a repair that is Running, or Unknown and so perhaps
// made.
func (w *world) underWay(uid types.UID) bool {
	for _, o := range w.store.objects {
		if d, ok := o.(*v1alpha1.Diagnosis); ok && d.UID == uid {
			return slices.ContainsFunc(d.Status.Remediations, func(r v1alpha1.Remediation) bool {
				return r.Outcome != nil && (r.Outcome.State == v1alpha1.ResultRunning || r.Outcome.State == v1alpha1.ResultUnknown)
			})
		}
	}
	return false
}

// holdsSlot checks that a change of a node has a slot of each policy that selects it.
func (w *world) holdsSlot(by, name string, n *corev1.Node, uid types.UID, what string) {
	p := &v1alpha1.RemediationPolicy{}
	if err := w.store.get(client.ObjectKey{Name: name}, p); err != nil {
		w.Fatal(err)
	}
	if m := p.Spec.NodeSelector.MatchLabels; m != nil && n.Labels["pool"] != m["pool"] {
		return
	}
	if !slices.ContainsFunc(p.Status.Repairs, func(r v1alpha1.Repair) bool {
		return r.Node == n.Name && r.Diagnosis == uid && r.EndTime == nil
	}) {
		w.breaks("%s: %s of %s by %s without a slot of %s", by, what, n.Name, uid, name)
	}
}

func (w *world) acts(n *corev1.Node) []policy.Act {
	acts, _, err := policy.Acts(n)
	if err != nil {
		w.Fatal(err)
	}
	return acts
}

// ours returns a policy's nodes that Kernosis has cordoned.
func (w *world) ours(name string) []string {
	p := w.store.objects["RemediationPolicy /"+name].(*v1alpha1.RemediationPolicy)
	out := map[string]bool{}
	for _, o := range w.store.objects {
		n, ok := o.(*corev1.Node)
		if m := p.Spec.NodeSelector.MatchLabels; !ok || m != nil && n.Labels["pool"] != m["pool"] {
			continue
		}
		if slices.ContainsFunc(w.acts(n), func(a policy.Act) bool { return a.String() == "cordon" }) {
			out[n.Name] = true
		}
	}
	return keys(out)
}

func keys(m map[string]bool) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// names returns the names of a kind's objects, sorted.
func (w *world) names(kind string) []types.NamespacedName {
	var out []types.NamespacedName
	for key, o := range w.store.objects {
		if strings.HasPrefix(key, kind+" ") {
			out = append(out, client.ObjectKeyFromObject(o))
		}
	}
	slices.SortFunc(out, func(a, b types.NamespacedName) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// begin starts a worker on an object, unless another of the same process has it.
func (w *world) begin(c *controlled, i int, kind string, name types.NamespacedName) {
	key := kind + name.String()
	for _, t := range c.workers {
		if t != nil && t.key == key {
			return
		}
	}
	t := &task{hand: hand{process: &c.process, waits: make(chan struct{}), turn: make(chan callFault)}, key: key, done: make(chan struct{})}
	c.r.views.changes.Add(1) // in the product, the events of nodes and policies do that
	do := map[string]reconcile.Func{"Diagnosis": c.r.Reconcile, "RemediationPolicy": c.r.reconcilePolicy, "Node": c.r.reconcileNode}[kind]
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), handKey{}, &t.hand))
	t.end = cancel
	c.workers[i] = t
	go func() {
		defer close(t.done)
		_, _ = do(ctx, reconcile.Request{NamespacedName: name}) // failures are retried at random
	}()
	w.await(c, i)
}

// await waits until a worker is at its next call, or done.
func (w *world) await(c *controlled, i int) {
	t := c.workers[i]
	select {
	case <-t.waits:
	case <-t.done:
		t.end()
		c.workers[i] = nil
	}
}

// turn lets a worker make its next call.
func (w *world) turn(c *controlled, i int, f callFault) {
	c.workers[i].turn <- f
	w.await(c, i)
}

// bury ends what a dead process was doing, and starts it again.
func (w *world) bury(c *controlled) {
	for i, t := range c.workers {
		if t != nil {
			t.end()
		}
		for t != nil && c.workers[i] == t {
			w.turn(c, i, fine) // the process is dead: each call fails
		}
	}
	w.start(c, fmt.Sprintf("%s.%d", c.name[:2], c.lives))
	w.note("%s begins", c.name)
}

// refresh updates a kind in a cache, as a watch does sooner or later.
func (w *world) refresh(c *controlled, kind string) {
	for key := range c.cache {
		if strings.HasPrefix(key, kind+" ") {
			delete(c.cache, key)
		}
	}
	for key, o := range w.store.objects {
		if strings.HasPrefix(key, kind+" ") {
			c.cache[key] = o
		}
	}
}

// step does one random thing.
func (w *world) step() {
	c := w.both[w.r.IntN(2)]
	i := w.r.IntN(len(c.workers))
	switch n := w.r.IntN(100); {
	case n < 70:
		if c.workers[i] == nil {
			kind := pick(w.r, "Diagnosis", "Diagnosis", "Diagnosis", "RemediationPolicy", "Node")
			w.begin(c, i, kind, pick(w.r, w.names(kind)...))
			return
		}
		f := fine
		if c.cut {
			f = pick(w.r, unsent, unsent, unsent, lost)
		} else if n := w.r.IntN(200); n < 6 {
			f = []callFault{unsent, unsent, lost, lost, killed, survived}[n]
		}
		if f != fine {
			w.note("%s: %s: fault %d", c.name, c.workers[i].key, f)
		}
		w.turn(c, i, f)
		if c.dead {
			w.bury(c)
		}
	case n < 80:
		w.refresh(c, pick(w.r, "Diagnosis", "RemediationPolicy", "Node"))
	case n < 90:
		w.agent()
	case n < 95:
		w.person()
	case n < 96:
		c.cut = !c.cut
		w.note("%s: cut off: %v", c.name, c.cut)
	default:
		time.Sleep(some(w.r, 4*time.Second))
	}
}

func (w *world) agent() {
	d := &v1alpha1.Diagnosis{}
	if err := w.store.get(pick(w.r, w.names("Diagnosis")...), d); err != nil {
		w.Fatal(err)
	}
	w.agents.step(w.Context(), d)
}

// person does what persons, kubelets and agents do: cordons, labels, nodes that become unready,
// problems that end.
func (w *world) person() {
	n := &corev1.Node{}
	if err := w.store.get(pick(w.r, w.names("Node")...), n); err != nil {
		w.Fatal(err)
	}
	if _, stale, _ := policy.Acts(n); stale {
		return // known limit: a change repeated before the stale mark is removed is taken for Kernosis'
	}
	status := false
	switch w.r.IntN(6) {
	case 0:
		w.persons[n.Name] = w.persons[n.Name] || !n.Spec.Unschedulable
		n.Spec.Unschedulable = true
	case 1, 2:
		n.Spec.Unschedulable = false
		delete(w.persons, n.Name)
	case 3:
		value := pick(w.r, "fine", "odd")
		n.Labels[randomLabel], w.labels[n.Name] = value, value
	case 4:
		status = true
		is := pick(w.r, corev1.ConditionTrue, corev1.ConditionTrue, corev1.ConditionFalse)
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: is, LastTransitionTime: metav1.Now()}}
	default:
		d := &v1alpha1.Diagnosis{}
		if err := w.store.get(pick(w.r, w.names("Diagnosis")...), d); err != nil {
			w.Fatal(err)
		}
		if len(begun(allowedRepairs(d))) == 0 && w.r.IntN(4) > 0 {
			return
		}
		d.Status.Problem = &v1alpha1.Problem{State: v1alpha1.ProblemGone, Since: metav1.NowMicro()}
		_ = w.store.put("", d, true)
		return
	}
	_ = w.store.put("", n, status)
}

// settles finishes the run without further faults: all problems end, persons undo all cordons, and
// each Diagnosis and each slot must end.
func (w *world) settles() {
	for _, c := range w.both {
		c.cut = false
		for i := range c.workers {
			for c.workers[i] != nil {
				w.turn(c, i, fine)
			}
		}
	}
	var left []string
	for range 200 {
		left = nil
		for _, name := range w.names("Node") {
			n := &corev1.Node{}
			_ = w.store.get(name, n)
			if n.Spec.Unschedulable {
				n.Spec.Unschedulable = false
				delete(w.persons, n.Name)
				_ = w.store.put("", n, false)
			}
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
			if !policy.NodeOf(w.store.objects["Node /"+n.Name].(*corev1.Node)).Ready {
				_ = w.store.put("", n, true)
			}
		}
		for _, c := range w.both {
			for _, kind := range []string{"Node", "RemediationPolicy", "Diagnosis"} {
				for _, name := range w.names(kind) {
					w.refresh(c, "Diagnosis")
					w.refresh(c, "RemediationPolicy")
					w.refresh(c, "Node")
					w.begin(c, 0, kind, name)
					for c.workers[0] != nil {
						w.turn(c, 0, fine)
					}
				}
			}
		}
		for _, name := range w.names("Diagnosis") {
			d := &v1alpha1.Diagnosis{}
			_ = w.store.get(name, d)
			w.agents.step(w.Context(), d)
			_ = w.store.get(name, d)
			if !d.Status.Phase.Ended() {
				left = append(left, d.Name)
			} else if d.Status.Problem.State == v1alpha1.ProblemLasts {
				d.Status.Problem = &v1alpha1.Problem{State: v1alpha1.ProblemGone, Since: metav1.NowMicro()}
				_ = w.store.put("", d, true)
			}
		}
		for name := range w.limits {
			for _, r := range w.store.objects["RemediationPolicy /"+name].(*v1alpha1.RemediationPolicy).Status.Repairs {
				if r.EndTime == nil {
					left = append(left, name+":"+r.Node)
				}
			}
		}
		if len(left) == 0 {
			return
		}
		time.Sleep(30 * time.Second)
	}
	w.breaks("without an end: %s", left)
}

// Two controllers that both believe they lead, with random policies, lagging caches, calls that
// fail or whose response is lost, partitions, and deaths before and after any call; and persons and
// agents that write the same objects. Budgets are never exceeded, nothing is made twice, only
// Kernosis' own changes are undone, and everything ends. A failed run reports its seed, which -seed
// repeats.
func TestRandomRunsOfTwoControllers(t *testing.T) {
	first, runs := 1+rand.Uint64N(1<<40), testenv.Cases(t, 1000)
	if testing.Short() || raceDetector { // without these, all of them run
		runs = max(1, runs/10)
	}
	if *seed != 0 {
		first, runs = *seed, 1
	}
	made := map[string]int{}
	for i := range runs {
		run := first + uint64(i)
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, run)
			for range 600 {
				if w.step(); w.Failed() {
					break
				}
			}
			if !w.Failed() {
				w.settles()
			}
			for _, c := range w.both { // no goroutine may stay behind in the synctest bubble
				c.dead = true
				w.bury(c)
			}
			for step := range w.made {
				made[strings.Fields(step)[1]]++
			}
			if w.Failed() {
				t.Logf("seed %d\n%s", run, strings.Join(w.log, "\n"))
			}
		})
		if t.Failed() {
			t.Fatalf("run %d of %d has seed %d", i, runs, run)
		}
	}
	t.Logf("%d runs from seed %d: made %v", runs, first, made)
	for _, what := range []string{"cordon", "label", "annotation", "taint"} {
		if runs >= 10 && made[what] < runs/4 {
			t.Errorf("%d of %s in %d runs tell little", made[what], what, runs)
		}
	}
}
