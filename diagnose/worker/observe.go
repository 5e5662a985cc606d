package worker

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/trigger"
)

const (
	// maxWaiting bounds the transitions that wait for triggers and pods to be known.
	maxWaiting = 1000
	// staleAfter is how long ago a transition may be that is replayed without a state of
	// before: all that the journal has is replayed then, and was diagnosed long ago.
	staleAfter = 10 * time.Minute
	// podsWait is how long a problem's pod may stay unknown: an API server or a kubelet that is
	// away must not hold back diagnoses.
	podsWait = 10 * time.Second
	// podsAgain is how often they are asked for meanwhile.
	podsAgain = 100 * time.Millisecond
)

// observation is a transition that waits until triggers and its pod are known.
type observation struct {
	Problem *problem.Problem `json:"problem"`
	At      time.Time        `json:"at"`
}

// Observe takes what the detector has reported, with its evidence, and when it did. What
// is given again after a restart makes the same Diagnoses, by the same names. It does not
// block: nothing is written and nothing asked.
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

// observe is about one problem. The lock is held.
func (w *Worker) observe(p *problem.Problem, at time.Time) {
	w.catchUp()
	// The end of a problem starts nothing: it waits only behind others.
	if len(w.waiting) > 0 || p.State == problem.Firing && !w.ready(p, at) {
		if len(w.waiting) == maxWaiting {
			w.drop(dropUnknown, "a problem's transition, while triggers or pods are not known", p.Rule)
			return
		}
		kept := *p // whoever has reported it may strip it
		w.waiting = append(w.waiting, observation{&kept, at})
		wake(w.moved)
		return
	}
	w.decide(p, at)
}

// ready reports whether triggers are known, and the pod of the problem that they may ask for,
// if it is one that will be. The lock is held.
func (w *Worker) ready(p *problem.Problem, at time.Time) bool {
	switch {
	case !w.installed:
		return false
	case !ofPod(p), w.c.Pod(p.Pod) != nil, w.c.PodsKnown(at):
		return true
	case w.started.After(at): // what the agent before this has journalled
		at = w.started
	}
	return !w.started.IsZero() && time.Since(at) >= podsWait
}

// ofPod reports whether triggers ask for the pod of a problem.
func ofPod(p *problem.Problem) bool { return p.Pod != "" && p.Group != "" }

// catchUp sees to what has waited, in order. The lock is held.
func (w *Worker) catchUp() {
	for len(w.waiting) > 0 && w.ready(w.waiting[0].Problem, w.waiting[0].At) {
		o := w.waiting[0]
		w.waiting[0], w.waiting = observation{}, w.waiting[1:]
		w.decide(o.Problem, o.At)
	}
}

// decide has the triggers decide about a problem. The lock is held.
func (w *Worker) decide(p *problem.Problem, at time.Time) {
	w.updateProblem(p)
	var pod *trigger.Pod
	if ofPod(p) {
		pod = w.c.Pod(p.Pod)
	}
	for _, d := range w.engine.Problem(p, pod, at) {
		w.addOfTrigger(d, p, at)
	}
}

// addOfTrigger takes a Diagnosis of a trigger. The lock is held.
func (w *Worker) addOfTrigger(d *v1alpha1.Diagnosis, p *problem.Problem, at time.Time) {
	e := &saved{
		ID: d.Name, Own: true, Diagnosis: d, Taken: at,
		Problem: &problemRef{Rule: p.Rule, Group: p.Group, State: v1alpha1.ProblemLasts, Since: p.FirstSeen},
	}
	name := (&entry{saved: *e}).name()
	_, known := w.names[name]
	switch {
	case known || w.ledger.newer[d.Name]: // by the run of the agent before this
	case !w.restored && time.Since(at) > staleAfter:
		w.drop(dropStale, "a Diagnosis of long ago", d.Name)
	case w.places().own >= w.c.MaxOpen:
		w.drop(dropFull, "a Diagnosis, as there are too many of triggers whose end is not reported", d.Name)
	default:
		w.stats.Taken++
		added := w.add(e)
		added.unsaved, added.never = true, true
		w.wakeBoth()
	}
}

// updateProblem notes how the problem is in the Diagnoses that were made for it. The lock is held.
func (w *Worker) updateProblem(p *problem.Problem) {
	state, since := v1alpha1.ProblemLasts, p.FirstSeen
	switch p.State {
	case problem.Firing:
	case problem.Resolved:
		state, since = v1alpha1.ProblemGone, p.Since
	default:
		return
	}
	for _, e := range w.problems[keyOf(p)] {
		if e.Problem.State == state {
			continue
		}
		e.Problem.State, e.Problem.Since = state, since
		e.unsaved = true
		e.changed(false)
		w.wakeBoth()
	}
}

// state is what a restart needs besides the ledger, the journal entries behind it and the
// store.
type state struct {
	Trigger json.RawMessage `json:"trigger"` // the engine's, which has a form of its own
	// Wanted are Diagnoses that the ledger does not have yet.
	Wanted []saved `json:"wanted,omitempty"`
	// Waiting are transitions that triggers have not been asked about yet.
	Waiting []observation `json:"waiting,omitempty"`
}

// State returns what [Worker.Restore] takes after a restart. It belongs to the detector's
// state of the same moment: what was observed behind that is to be observed again.
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

// Restore comes once, before anything is observed: with what State returned, or nil. The
// error is about a part that can't be read: what triggers remember, in most cases. The rest
// is in force all the same.
func (w *Worker) Restore(raw json.RawMessage) error {
	if w == nil {
		return nil
	}
	var err error
	if len(raw) > 0 {
		err = w.restore(raw)
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
	w.restored = err == nil
	for _, o := range s.Waiting {
		if o.Problem != nil && len(w.waiting) < maxWaiting {
			w.waiting = append(w.waiting, o)
		}
	}
	for i := range s.Wanted {
		one := &s.Wanted[i]
		if one.Diagnosis == nil || w.entries[one.ID] != nil {
			continue
		}
		e := w.add(one)
		e.unsaved, e.never = true, true
	}
	return err
}

// install puts triggers in force. Those that are wrong are reported, once, and left aside.
func (w *Worker) install(known *Objects) {
	var matchers []*trigger.Matcher
	wrong := map[string]string{}
	for _, t := range known.Triggers {
		if t.Spec.SourceTemplate.ProblemTemplate == nil {
			continue // the controller's
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
