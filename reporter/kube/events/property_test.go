package events

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// world is a sink with its surroundings, driven step by step.
type world struct {
	t       *testing.T
	rnd     *rand.Rand
	dir     string
	journal *journal.Journal
	api     *model
	sink    *Sink
	killAt  float64 // the probability, at each stage
	kills   int

	happened, onPods map[string]uint64 // by rule
	status           map[string]problem.Status
}

func (w *world) start() {
	var err error
	if w.journal, err = journal.Open(w.dir+"/journal", journal.Options{Patience: time.Minute}); err != nil {
		w.t.Fatal(err)
	}
	w.sink, err = New(Config{
		Node: "n1", Client: kubernetes.NewForConfigOrDie(&rest.Config{Host: "none.invalid"}), Pods: known{},
		Dir: w.dir, JournalDir: w.dir + "/journal", JournalSeq: w.journal.Seq(), Log: slog.New(slog.DiscardHandler),
		Fault: func(Stage) {
			if w.killAt > 0 && w.rnd.Float64() < w.killAt {
				panic(killed{})
			}
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.sink.table.max, w.sink.table.burst, w.sink.table.refill = 30, 5, 20*time.Second
	w.sink.api = w.api
}

// survive calls f, and restarts the sink if the process is killed in it.
func (w *world) survive(f func()) {
	defer func() {
		switch r := recover(); r.(type) {
		case nil:
		case killed:
			w.kills++
			at := w.killAt
			w.killAt = 0
			w.journal.Close()
			w.start()
			w.killAt = at
		default:
			panic(r)
		}
	}()
	f()
}

func (w *world) append(tr ...problem.Transition) {
	e := journal.Entry{Now: time.Now(), Event: &event.Event{CPU: 0}, Transitions: tr}
	seq, _, err := w.journal.Add(e)
	if err = errors.Join(err, w.journal.Flush()); err != nil {
		w.t.Fatal(err)
	}
	e.Seq = seq
	w.survive(func() {
		w.sink.cfg.Fault("appended")
		w.sink.Add(e)
		w.sink.Flush(e.Seq)
	})
}

func (w *world) occur() {
	rule := []string{"oom-kill", "disk-error", "task-hung"}[w.rnd.IntN(3)]
	p := &problem.Problem{
		Rule: rule, Reason: "R", Severity: problem.Warning, State: problem.Firing, FirstSeen: time.Now(), LastSeen: time.Now(),
		Group: fmt.Sprint("g", w.rnd.IntN(12)), Message: fmt.Sprint("message ", w.rnd.IntN(1000)),
	}
	switch w.rnd.IntN(12) {
	case 0:
		p.State = problem.Resolved
	case 1:
		p.MutedUntil = time.Now().Add(time.Hour)
	case 2:
		p.SuppressedBy = "cause"
	default:
		if rule != "disk-error" {
			p.Pod = fmt.Sprint([]string{"shop", "shop", "shop", "going", "unknown", "bad"}[w.rnd.IntN(6)], "-", w.rnd.IntN(8))
			w.onPods[rule]++
		}
		w.happened[rule]++
	}
	w.append(problem.Transition{Problem: p})
}

// meanwhile happens while a request is on its way. No kill happens in it.
func (w *world) meanwhile() {
	at := w.killAt
	w.killAt = 0
	defer func() { w.killAt = at }()
	switch w.rnd.IntN(6) {
	case 0:
		w.occur()
		w.sink.drain()
	case 1:
		time.Sleep(time.Duration(w.rnd.IntN(11)) * time.Minute)
	case 2:
		if err := w.sink.save(time.Now()); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) turn() {
	c := &problem.Condition{Type: fmt.Sprint("C", w.rnd.IntN(2)), Status: []problem.Status{problem.True, problem.False, problem.Unknown}[w.rnd.IntN(3)], Reason: "R", LastTransition: time.Now()}
	if was, ok := w.status[c.Type]; was != c.Status && (ok || c.Status == problem.True) {
		w.happened["condition/"+c.Type]++
	}
	w.status[c.Type] = c.Status
	w.append(problem.Transition{Condition: c})
}

func (w *world) step() {
	switch n := w.rnd.IntN(100); {
	case n < 30:
		for range 1 + w.rnd.IntN(20) {
			w.occur()
		}
	case n < 33:
		w.turn()
	case n < 55:
		w.survive(w.sink.drain)
	case n < 80:
		w.survive(func() {
			if next, _ := w.sink.next(time.Now(), false); next != nil {
				w.sink.request(w.t.Context(), next)
			}
		})
	case n < 85:
		w.survive(func() {
			if !w.sink.needsSave(time.Now()) {
				return
			}
			if err := w.sink.save(time.Now()); err != nil {
				w.t.Fatal(err)
			}
		})
	case n < 95:
		time.Sleep(time.Duration(w.rnd.IntN(5000)) * time.Millisecond)
	case n < 97:
		time.Sleep(time.Duration(w.rnd.IntN(15)) * time.Minute)
	case n < 98:
		w.api.down = !w.api.down
	case n < 99:
		clear(w.api.now) // all Events expire
	default:
		w.survive(func() { panic(killed{}) })
	}
}

func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	rnd := rand.New(rand.NewPCG(seed, 1))
	w := &world{
		t: t, rnd: rnd, dir: t.TempDir(), happened: map[string]uint64{}, onPods: map[string]uint64{}, status: map[string]problem.Status{},
		api: &model{rnd: rnd, now: map[string]corev1.Event{}, reported: map[string]int64{}, onPod: map[string]bool{}},
	}
	w.calm()
	w.start()
	return w
}

// calm ends all failures.
func (w *world) calm() { w.killAt, w.api.calm, w.api.during = 0, true, func() {} }

// settle sends everything that is pending.
func (w *world) settle() {
	w.sink.drain()
	for range 5000 {
		next, wait := w.sink.next(time.Now(), false)
		if next != nil {
			w.sink.request(w.t.Context(), next)
		} else if wait == forever {
			return
		}
		time.Sleep(wait)
	}
}

// A series ends only with a save: an occurrence after its end is reported once, whether or not
// the process is killed before the next save.
func TestSeriesEndsWithASave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		defer func() { w.journal.Close() }()
		disk := func() {
			w.append(problem.Transition{Problem: &problem.Problem{Rule: "disk", Reason: "R", State: problem.Firing, LastSeen: time.Now()}})
			w.settle()
		}
		save := func() {
			if err := w.sink.save(time.Now()); err != nil {
				t.Fatal(err)
			}
		}
		reported := func(want ...int64) {
			t.Helper()
			if got := slices.Sorted(maps.Values(w.api.reported)); !slices.Equal(got, want) {
				t.Errorf("Events tell of %d, want %d", got, want)
			}
		}
		disk()
		save()
		time.Sleep(w.sink.cfg.Idle + time.Second)
		w.settle()
		disk()
		w.survive(func() { panic(killed{}) })
		w.settle()
		reported(2)
		time.Sleep(w.sink.cfg.Idle + time.Second)
		if !w.sink.needsSave(time.Now()) {
			t.Error("a series that is over needs no save")
		}
		save()
		disk()
		reported(1, 2)
		w.survive(func() { panic(killed{}) })
		w.settle()
		reported(1, 2)
	})
}

// A problem that is reported again after its series has ended is the same problem, but a new
// series: its Event does not reuse the name and the count of the previous one.
func TestProblemThatOutlastsItsSeries(t *testing.T) {
	for name, condition := range map[string]string{"permanent": "X", "temporary": ""} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 1)
				w.api.calm = true
				defer func() { w.journal.Close() }()
				first := time.Now()
				fires := func() {
					w.append(problem.Transition{Problem: &problem.Problem{
						Rule: "hung", Group: "g", Pod: "shop-1", Reason: "R", Condition: condition, State: problem.Firing, FirstSeen: first, LastSeen: first,
					}})
					w.settle()
				}
				fires()
				fires()
				time.Sleep(w.sink.cfg.Idle + time.Second)
				w.settle()
				if err := w.sink.save(time.Now()); err != nil {
					t.Fatal(err)
				}
				fires()
				for _, onPod := range []bool{true, false} {
					var counts []int64
					for event, n := range w.api.reported {
						if w.api.onPod[event] == onPod {
							counts = append(counts, n)
						}
					}
					slices.Sort(counts)
					if !slices.Equal(counts, []int64{1, 2}) {
						t.Errorf("on the pod %v: counts %d, want 1 and 2", onPod, counts)
					}
				}
			})
		})
	}
}

// Whatever fails and whenever the process is killed: the counts of the Events and of dropped
// occurrences add up to exactly what happened.
func TestSumsHold(t *testing.T) {
	rounds := testenv.Cases(t, 5)
	kills, unreported := 0, map[string]uint64{}
	for seed := range uint64(rounds) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, seed)
			w.killAt, w.api.calm, w.api.during = 0.01, false, w.meanwhile
			for range 600 {
				w.step()
			}
			w.calm()
			w.settle()
			kills += w.kills
			w.check(unreported)
			w.journal.Close()
		})
	}
	if kills < rounds {
		t.Errorf("only %d kills in %d rounds", kills, rounds)
	}
	for _, why := range []string{AstrayBudget, AstrayInvalid, AstrayNamespace, AstrayPod} {
		if !testing.Short() && unreported[why] == 0 {
			t.Errorf("nothing went untold for %s: the test does not test that", why)
		}
	}
}

func sum(m map[string]uint64) (n uint64) {
	for v := range maps.Values(m) {
		n += v
	}
	return n
}

func (w *world) check(unreported map[string]uint64) {
	st := w.sink.Stats()
	if st.Waiting != 0 || st.LostEntries != 0 {
		w.t.Errorf("%d series wait, %d entries lost", st.Waiting, st.LostEntries)
	}
	var onNode, onPods, dropped, missed uint64
	for name, n := range w.api.reported {
		if w.api.onPod[name] {
			onPods += uint64(n)
		} else {
			onNode += uint64(n)
		}
	}
	for name, r := range st.Rules {
		if r.Happened != w.happened[name] || r.OnPods != w.onPods[name] {
			w.t.Errorf("rule %s: %d counted, %d on pods; %d happened, %d on pods", name, r.Happened, r.OnPods, w.happened[name], w.onPods[name])
		}
		dropped += sum(r.Dropped)
		missed += sum(r.Unreported)
		for why, n := range r.Unreported {
			unreported[why] += n
		}
	}
	if want := sum(w.happened); onNode+dropped != want {
		w.t.Errorf("Events on the Node tell of %d, %d dropped; %d happened", onNode, dropped, want)
	}
	if want := sum(w.onPods); onPods+missed != want {
		w.t.Errorf("Events on pods tell of %d, %d untold; %d happened", onPods, missed, want)
	}
	// When the model is calm, nothing may be left to send.
	if slices.ContainsFunc(w.sink.table.list, (*series).dirty) {
		w.t.Error("a series is not sent")
	}
}

// fires adds an occurrence of a temporary problem.
func (w *world) fires(rule, pod string) {
	w.append(problem.Transition{Problem: &problem.Problem{Rule: rule, Group: pod, Pod: pod, Reason: "R", State: problem.Firing, LastSeen: time.Now()}})
}

// lasts sends what is due for some time.
func (w *world) lasts(d time.Duration) {
	w.sink.drain()
	for until := time.Now().Add(d); time.Now().Before(until); {
		next, wait := w.sink.next(time.Now(), false)
		if next != nil {
			w.sink.request(w.t.Context(), next)
		} else {
			time.Sleep(min(wait, time.Until(until)))
		}
	}
}

// onNode returns the counts of the Node's Events, the lowest first.
func (w *world) onNode() (counts []int64) {
	for name, n := range w.api.reported {
		if !w.api.onPod[name] {
			counts = append(counts, n)
		}
	}
	slices.Sort(counts)
	return counts
}

// partlyDown is an API server that accepts no Event in a namespace, or in any if it is empty, until
// it is up.
type partlyDown struct {
	*model
	namespace string
	err       error
	up        bool
	requests  int
}

func (p *partlyDown) create(ctx context.Context, e *corev1.Event) error {
	p.requests++
	if !p.up && (p.namespace == "" || e.Namespace == p.namespace) {
		return p.err
	}
	return p.model.create(ctx, e)
}

// Events that the API server always fails do not hold up the others.
func TestEventsThatAlwaysFail(t *testing.T) {
	for name, err := range map[string]error{
		"a webhook is down":               apierrors.NewInternalError(errors.New("failed calling webhook")),
		"the namespace has a rate limit":  apierrors.NewTooManyRequestsError("limit reached on type Namespace for key shop"),
		"the rate limit has a retry time": apierrors.NewTooManyRequests("limit reached", 1),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 1)
				defer func() { w.journal.Close() }()
				api := &partlyDown{model: w.api, namespace: "shop", err: err}
				w.sink.api = api
				for i := range 5 {
					w.fires("oom-kill", fmt.Sprint("shop-", i))
				}
				w.lasts(10 * time.Minute)
				if got := w.onNode(); !slices.Equal(got, []int64{5}) {
					t.Errorf("after 10 minutes the Node's Events tell of %d, want 5", got)
				}
				if api.requests > 100 {
					t.Errorf("%d requests", api.requests)
				}
				w.fires("disk", "")
				w.fires("oom-kill", "other-1")
				w.lasts(lastRetry + time.Second)
				if got := w.onNode(); !slices.Equal(got, []int64{1, 6}) {
					t.Errorf("the Node's Events tell of %d, want 1 and 6", got)
				}
				if len(w.api.reported) != 3 {
					t.Errorf("%d Events, want those of the Node and the other pod", len(w.api.reported))
				}
				api.up = true
				w.lasts(lastRetry + time.Second)
				if n := w.sink.Stats().Waiting; n != 0 || len(w.api.reported) != 3+5 {
					t.Errorf("%d Events in the end, %d wait", len(w.api.reported), n)
				}
			})
		})
	}
}

// A policy that denies Events for a while silences none of them: they are sent when it accepts them.
func TestEventsThatAPolicyDenies(t *testing.T) {
	// As the API server answers for a ValidatingAdmissionPolicy.
	denied := apierrors.NewInvalid(schema.GroupKind{Kind: "Event"}, "e", nil)
	denied.ErrStatus.Details.Causes = []metav1.StatusCause{{Message: "failed expression: false"}}
	byWebhook := func(err *apierrors.StatusError) error {
		err.ErrStatus.Message = `admission webhook "events.example.com" denied the request: ` + err.ErrStatus.Message
		return err
	}
	kind := schema.GroupKind{Kind: "Event"}
	for name, err := range map[string]error{
		"policy":                     denied,
		"webhook":                    byWebhook(apierrors.NewBadRequest("no")),
		"webhook, too large":         byWebhook(apierrors.NewRequestEntityTooLargeError("no")),
		"webhook, media type":        byWebhook(&apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType}}),
		"webhook, invalid field":     byWebhook(apierrors.NewInvalid(kind, "e", field.ErrorList{field.Required(field.NewPath("metadata", "labels"), "no team")})),
		"webhook, missing namespace": byWebhook(apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "shop")),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 1)
				defer func() { w.journal.Close() }()
				api := &partlyDown{model: w.api, err: err}
				w.sink.api = api
				w.fires("oom-kill", "shop-1")
				w.lasts(time.Minute)
				api.up = true
				w.lasts(3 * time.Minute)
				for range 2 {
					w.fires("oom-kill", "shop-1")
					w.lasts(4 * time.Minute)
				}
				if got, st := w.onNode(), w.sink.Stats(); !slices.Equal(got, []int64{3}) || len(w.api.reported) != 2 || st.Waiting != 0 {
					t.Errorf("the Node's Events tell of %d of 3; %d Events, %d wait; %+v", got, len(w.api.reported), st.Waiting, st.Rules)
				}
				if api.requests > 30 {
					t.Errorf("%d requests", api.requests)
				}
			})
		})
	}
}

// An Event on the Node that has expired is created again with its evidence, also if only the number of
// occurrences that are not reported on their pods has changed.
func TestExpiredEventKeepsItsEvidence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		defer func() { w.journal.Close() }()
		e := journal.Entry{Now: time.Now(), Event: &event.Event{Kind: event.OOMKill, OOMKill: &event.OOMKillData{Scope: "memcg"}}, Transitions: []problem.Transition{{Problem: &problem.Problem{
			Rule: "oom-kill", Group: "g", Pod: "unknown-1", Reason: "R", Doc: "problems/OOMKilling", State: problem.Firing, LastSeen: time.Now(),
		}}}}
		var err error
		if e.Seq, _, err = w.journal.Add(e); errors.Join(err, w.journal.Flush()) != nil {
			t.Fatal(err)
		}
		w.sink.Add(e)
		w.sink.Flush(e.Seq)
		w.lasts(time.Second)
		if len(w.api.now) != 1 {
			t.Fatalf("%d Events, want that on the Node", len(w.api.now))
		}
		clear(w.api.now)
		w.lasts(time.Minute) // its pod is given up
		for _, on := range w.api.now {
			f := event.FactsOf(on.Annotations)
			if !strings.HasSuffix(on.Message, "(1 of 1 not reported on their pods)") || f.Kind != event.OOMKill || f.Verdict != "memcg" || f.Doc == "" {
				t.Errorf("%q with %+v", on.Message, f)
			}
		}
		if len(w.api.now) != 1 || w.sink.Stats().Requests[Recreated] != 1 {
			t.Errorf("%d Events, %v", len(w.api.now), w.sink.Stats().Requests)
		}
	})
}
