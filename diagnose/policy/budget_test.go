package policy_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/apitest"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/policy"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// newClient returns a client with its own connections, on a server with the CRDs.
func newClient(t *testing.T) client.WithWatch {
	t.Helper()
	server := cluster.Server(t)
	server.CRDs(t)
	config := server.Admin()
	config.Dial = (&net.Dialer{}).DialContext
	return apitest.Client(t, config)
}

func create(t *testing.T, c client.Client, p *v1alpha1.RemediationPolicy) {
	t.Helper()
	if err := c.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.IgnoreNotFound(c.Delete(context.WithoutCancel(t.Context()), p)); err != nil {
			t.Error(err)
		}
	})
}

// counted counts conflicts, and loses some responses to writes.
type counted struct {
	client.SubResourceWriter
	conflicts *atomic.Int64
	writes    atomic.Int64
}

var errLost = errors.New("the answer was lost")

func (s *counted) Update(ctx context.Context, o client.Object, opts ...client.SubResourceUpdateOption) error {
	err := s.SubResourceWriter.Update(ctx, o, opts...)
	if apierrors.IsConflict(err) {
		s.conflicts.Add(1)
	}
	if err == nil && s.writes.Add(1)%5 == 1 {
		return errLost
	}
	return err
}

func budgetOf(c client.Client, conflicts *atomic.Int64) *policy.Budget {
	return &policy.Budget{Holder: "one", Now: time.Now, Reader: c, Writer: &counted{SubResourceWriter: c.Status(), conflicts: conflicts}, TakenOver: func(types.UID) {}}
}

// history records each version of a policy, from the first.
type history struct {
	mu       sync.Mutex
	versions [][]v1alpha1.Repair
	changed  chan struct{} // closed and replaced at each version
}

func (h *history) run(w watch.Interface) {
	for e := range w.ResultChan() {
		p, ok := e.Object.(*v1alpha1.RemediationPolicy)
		if !ok {
			continue
		}
		h.mu.Lock()
		h.versions = append(h.versions, p.Status.Repairs)
		close(h.changed)
		h.changed = make(chan struct{})
		h.mu.Unlock()
	}
}

func (h *history) next() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.changed
}

func held(repairs []v1alpha1.Repair) (nodes []string) {
	for _, r := range repairs {
		if r.EndTime == nil {
			nodes = append(nodes, r.Node)
		}
	}
	return nodes
}

// Fifty nodes fail at once, each with its own client that wants one of two slots. One in five
// responses to writes is lost, and every seventh slot holder ends without releasing it. All get
// their turn, and no version of the object ever has three holders.
func TestFiftyNodesWantASlotAtOnce(t *testing.T) {
	testenv.OnlyInTestAll(t)
	const all, crashing = 50, 7
	admin := newClient(t)
	obj := enforce(2)
	obj.Name, obj.Spec.VerifyWithin, obj.Spec.PauseWhenUnhealthyPercent = "fifty", *duration(time.Second), 100
	create(t, admin, obj)
	w, err := admin.Watch(t.Context(), &v1alpha1.RemediationPolicyList{}, &client.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", obj.Name), Raw: &metav1.ListOptions{ResourceVersion: obj.ResourceVersion},
	})
	if err != nil {
		t.Fatal(err)
	}
	h := &history{changed: make(chan struct{})}
	watched := make(chan struct{})
	go func() { defer close(watched); h.run(w) }()

	ctx, cancel := context.WithTimeout(t.Context(), testenv.Within(4*time.Minute))
	defer cancel()
	var conflicts, inside, lost, refused atomic.Int64
	var gone sync.Map // UIDs of diagnoses whose process has ended
	var wg, sweeper sync.WaitGroup
	begin := make(chan struct{})
	c := nodes(all)
	for i := range all {
		b := budgetOf(newClient(t), &conflicts)
		wg.Go(func() {
			<-begin
			node, uid := name(i+1), types.UID(fmt.Sprint("uid-", i+1))
			mine := want(node)
			mine.Diagnosis, mine.Due = uid, time.Now()
			for {
				next := h.next()
				d, err := b.Acquire(ctx, []string{obj.Name, "not-there"}, c, mine)
				if errors.Is(err, errLost) {
					lost.Add(1)
					continue
				}
				if err != nil {
					t.Errorf("%s: %v", node, err)
					return
				}
				if d.Verb == v1alpha1.RemediationRun {
					break
				}
				refused.Add(1)
				if d.Verb != v1alpha1.RemediationWait || d.Reason != v1alpha1.ReasonBudgetExhausted {
					t.Errorf("%s: %+v", node, d)
				}
				select {
				case <-next:
				case <-ctx.Done():
					t.Errorf("%s never had its turn: %+v", node, d)
					return
				}
			}
			if n := inside.Add(1); n > 2 {
				t.Errorf("%d are inside", n)
			}
			if err := b.Verify(ctx, []string{obj.Name}, &c.Nodes[i], uid); err != nil {
				t.Error(err)
			}
			inside.Add(-1)
			if i%crashing == 0 {
				gone.Store(uid, true)
				return
			}
			for errors.Is(b.Release(ctx, []string{obj.Name}, node, uid, policy.End), errLost) {
				lost.Add(1)
			}
		})
	}
	swept := make(map[string]int)
	stop := make(chan struct{})
	sweeper.Go(func() {
		b := &policy.Budget{Holder: "one", Now: time.Now, Reader: admin, Writer: admin.Status(), TakenOver: func(types.UID) {}}
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			given, err := b.Sweep(ctx, obj.Name, func(r *v1alpha1.Repair) policy.Facts {
				f := policy.Facts{Now: time.Now(), Node: &policy.Node{Name: r.Node, Ready: true}, Holder: policy.HolderRuns}
				if _, ok := gone.Load(r.Diagnosis); ok {
					f.Holder = policy.HolderLost
				}
				return f
			})
			if err != nil {
				t.Error(err)
				return
			}
			for _, r := range given {
				swept[r.Node]++
			}
			select {
			case <-tick.C:
			case <-stop:
				return
			}
		}
	})
	began := time.Now()
	close(begin)
	wg.Wait()
	took := time.Since(began)
	for open := true; open; { // wait for the last that crashed
		next := h.next()
		p := &v1alpha1.RemediationPolicy{}
		if err := admin.Get(ctx, client.ObjectKeyFromObject(obj), p); err != nil {
			t.Error(err)
			break
		}
		if open = len(held(p.Status.Repairs)) > 0; open {
			select {
			case <-next:
			case <-ctx.Done():
				t.Errorf("held for ever: %v", held(p.Status.Repairs))
				open = false
			}
		}
	}
	close(stop)
	sweeper.Wait()
	w.Stop()
	<-watched

	most, turns := 0, make(map[string]int)
	var before []string
	for _, v := range h.versions {
		now := held(v)
		most = max(most, len(now))
		for _, n := range now {
			if !slices.Contains(before, n) {
				turns[n]++
			}
		}
		before = now
	}
	t.Logf("%d versions, at most %d held; %d conflicts, %d lost answers, %d refusals, %d swept; %s", len(h.versions), most, conflicts.Load(), lost.Load(), refused.Load(), len(swept), took.Round(time.Millisecond))
	if most != 2 || len(turns) != all {
		t.Errorf("at most %d held, %d of %d nodes had a turn", most, len(turns), all)
	}
	for n, times := range turns {
		if times != 1 {
			t.Errorf("%s had %d turns", n, times)
		}
	}
	if len(swept) != (all+crashing-1)/crashing || conflicts.Load() == 0 || lost.Load() == 0 {
		t.Errorf("swept %v, %d conflicts, %d lost", swept, conflicts.Load(), lost.Load())
	}
}
