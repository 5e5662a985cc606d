package worker

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/trigger"
)

const (
	// maxWaiting bounds the transitions that wait until triggers and pods are known.
	maxWaiting = 1000
	// staleAfter is how old a transition may be if the whole journal is replayed: old transitions
	// were diagnosed long ago.
	staleAfter = 10 * time.Minute
	// podsWait is how long to wait for a problem's pod: an unreachable API server or kubelet must
	// not hold back diagnoses.
	podsWait = 10 * time.Second
	// podsAgain is how often the pods are checked meanwhile.
	podsAgain = 100 * time.Millisecond
)

// observation is a transition that waits until triggers and its pod are known.
type observation struct {
	Problem *problem.Problem `json:"problem"`
	At      time.Time        `json:"at"`
	// Stale: the transition was old when it was replayed, and it is unknown which Diagnoses were
	// made for it.
	Stale bool `json:"stale,omitempty"`
	// since is when this process began to wait for it. At may be in the future, if the clock was set
	// back meanwhile.
	since time.Time
}

// Observe takes transitions from the detector, with their evidence and the time of the report. The
// same transitions after a restart make the same Diagnoses, under the same names. Observe does not
// block: it neither writes nor sends requests.
func (w *Worker) Observe(transitions []problem.Transition, at time.Time) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range transitions {
		if p := transitions[i].Problem; p != nil {
			w.observe(p, at)
		}
	}
}

// observe handles one problem. The lock is held.
func (w *Worker) observe(p *problem.Problem, at time.Time) {
	w.catchUp()
	if len(w.waiting) == maxWaiting {
		if !w.installed {
			w.drop(dropUnknown, "a problem's transition, while triggers are unknown", w.waiting[0].Problem.Rule)
		}
		w.decideNext()
		w.catchUp()
	}
	// The end of a problem starts nothing, so it waits only behind others.
	o := observation{Problem: p, At: at, Stale: !w.restored && time.Since(at) > staleAfter, since: time.Now()}
	if len(w.waiting) > 0 || p.State == problem.Firing && !w.ready(&o) {
		o.Problem = new(*p) // the reporter may strip it later
		w.waiting = append(w.waiting, o)
		wake(w.moved)
		return
	}
	w.decide(&o)
}

// ready reports whether triggers are known and, if triggers need it, the problem's pod. It waits for
// the pod for at most podsWait. The lock is held.
func (w *Worker) ready(o *observation) bool {
	since := o.since
	switch {
	case !w.installed:
		return false
	case !ofPod(o.Problem), w.c.Pod(o.Problem.Pod) != nil, w.c.PodsKnown(o.At):
		return true
	case w.started.After(since):
		since = w.started
	}
	return !w.started.IsZero() && time.Since(since) >= podsWait
}

// ofPod reports whether triggers need the pod of a problem.
func ofPod(p *problem.Problem) bool { return p.Pod != "" && p.Group != "" }

// catchUp handles waiting transitions, in order. The lock is held.
func (w *Worker) catchUp() {
	for len(w.waiting) > 0 && w.ready(&w.waiting[0]) {
		w.decideNext()
	}
}

// decideNext handles the first waiting transition, even if its pod is unknown. The lock is held.
func (w *Worker) decideNext() {
	o := w.waiting[0]
	w.waiting[0], w.waiting = observation{}, w.waiting[1:]
	w.decide(&o)
}

// decide runs the triggers for a problem. The lock is held.
func (w *Worker) decide(o *observation) {
	p := o.Problem
	w.updateProblem(p)
	var pod *trigger.Pod
	if ofPod(p) {
		pod = w.c.Pod(p.Pod)
	}
	for _, d := range w.engine.Problem(p, pod, o.At) {
		w.addOfTrigger(d, o)
	}
}

// addOfTrigger adds a Diagnosis of a trigger. The lock is held.
func (w *Worker) addOfTrigger(d *v1alpha1.Diagnosis, o *observation) {
	p := o.Problem
	e := &saved{
		ID: d.Name, Own: true, Diagnosis: d, Taken: o.At,
		Problem: &problemRef{Rule: p.Rule, Group: p.Group, State: v1alpha1.ProblemLasts, Since: p.FirstSeen},
	}
	name := (&entry{saved: *e}).name()
	_, known := w.names[name]
	switch {
	case known || w.ledger.newer[d.Name]: // added by the previous agent process
	case o.Stale:
		w.drop(dropStale, "a Diagnosis of an old problem", d.Name)
	case w.places().own >= w.c.MaxOpen:
		w.drop(dropFull, "a Diagnosis: too many started by triggers are not reported as ended", d.Name)
	default:
		w.stats.Taken++
		added := w.add(e)
		added.unsaved, added.never = true, true
		w.wakeBoth()
	}
}

// updateProblem updates the problem's state in the Diagnoses that were made for it. The lock is
// held.
func (w *Worker) updateProblem(p *problem.Problem) {
	state, since := v1alpha1.ProblemLasts, p.FirstSeen
	switch p.State {
	case problem.Firing:
	case problem.Resolved:
		state, since = v1alpha1.ProblemGone, p.Since
	default:
		return
	}
	for _, e := range w.problems[problemKey{p.Rule, p.Group}] {
		if e.Problem.State == state {
			continue
		}
		e.Problem.State, e.Problem.Since = state, since
		e.unsaved = true
		e.changed(false)
		w.wakeBoth()
	}
}

// state is what a restart needs besides the ledger, the store, and the journal entries written
// after it.
type state struct {
	Trigger json.RawMessage `json:"trigger"` // the engine's state, which has its own format
	// Wanted are Diagnoses that are not in the ledger yet.
	Wanted []saved `json:"wanted,omitempty"`
	// Waiting are transitions that the triggers have not handled yet.
	Waiting []observation `json:"waiting,omitempty"`
}

// State returns the input of [Worker.Restore] after a restart. It belongs to the detector's state
// of the same moment: later observations must be observed again.
func (w *Worker) State() (json.RawMessage, error) {
	if w == nil {
		return nil, nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s := state{Waiting: w.waiting}
	for _, e := range w.sorted() {
		if e.never {
			s.Wanted = append(s.Wanted, e.saved)
		}
	}
	var err error
	var raw json.RawMessage
	if s.Trigger, err = json.Marshal(w.engine.State()); err == nil {
		raw, err = json.Marshal(s)
	}
	if err != nil {
		return nil, fmt.Errorf("state of the diagnoses: %w", err)
	}
	return raw, nil
}

// Restore must be called once, before any observation, with the result of State, or nil. whole: not
// only later observations follow, but all that the journal has. An error means that a part could not
// be read, usually the triggers' memory; the rest is in force.
func (w *Worker) Restore(raw json.RawMessage, whole bool) error {
	if w == nil {
		return nil
	}
	var err error
	if len(raw) > 0 {
		err = w.restore(raw)
		w.restored = err == nil && !whole
	}
	if known := w.c.Store.Objects(); len(known.OperationSets)+len(known.Triggers) > 0 {
		w.install(known)
	}
	if err != nil {
		return fmt.Errorf("state of the diagnoses: %w", err)
	}
	return nil
}

func (w *Worker) restore(raw json.RawMessage) error {
	var s state
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	remembered, err := trigger.ParseState(s.Trigger)
	if err == nil {
		err = w.engine.Restore(remembered)
	}
	invalid := 0
	for _, o := range s.Waiting {
		if o.Problem == nil || len(w.waiting) == maxWaiting {
			invalid++
			continue
		}
		o.since = time.Now()
		w.waiting = append(w.waiting, o)
	}
	for i := range s.Wanted {
		one := &s.Wanted[i]
		switch {
		case !one.valid():
			invalid++
		case w.entries[one.ID] == nil:
			e := w.add(one)
			e.unsaved, e.never = true, true
		}
	}
	if invalid > 0 {
		err = errors.Join(err, fmt.Errorf("%d of %d transitions and Diagnoses can't be restored", invalid, len(s.Waiting)+len(s.Wanted)))
	}
	return err
}

// install puts triggers in force. Invalid ones are logged once and ignored.
func (w *Worker) install(known *Objects) {
	var matchers []*trigger.Matcher
	wrong := map[string]string{}
	for _, t := range known.Triggers {
		if t.Spec.SourceTemplate.ProblemTemplate == nil {
			continue // the controller handles it
		}
		m, err := trigger.Compile(t)
		if err != nil {
			wrong[t.Name] = err.Error()
			continue
		}
		matchers = append(matchers, m)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, why := range wrong {
		if w.refused[name] != why {
			w.log.Warn("trigger ignored", "trigger", name, "error", why)
		}
	}
	w.refused = wrong
	if err := w.engine.Install(matchers); err != nil {
		w.log.Error("triggers not reloaded; the previous ones stay in force", "error", err)
		return
	}
	w.installed = true
	w.catchUp()
}
