package kube_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/reporter/kube/conditions"
	"github.com/kernosis/kernosis/reporter/kube/events"
	"github.com/kernosis/kernosis/reporter/kube/lease"
	"github.com/kernosis/kernosis/reporter/kube/pods"
)

// podMap is a PodSource that knows all its pods.
type podMap map[string]pods.Pod

func (m podMap) Pod(uid string) (pods.Pod, bool) { p, ok := m[uid]; return p, ok }
func (m podMap) Synced() bool                    { return true }

// agent is what reports to the API server, wired as the command wires it, with the
// times of the product and heartbeats off, so that idle agents write Leases alone. In
// place of an engine there is a list of conditions.
type agent struct {
	tb         testing.TB
	node       string
	pod        pods.Pod
	current    []problem.Condition
	journal    *journal.Journal
	conditions *conditions.Patcher
	lease      *lease.Keeper
	events     *events.Sink
	running    sync.WaitGroup
}

// newAgent makes an agent with a connection of its own, as one on its own node has.
func newAgent(tb testing.TB, config *rest.Config, node, namespace, dir string, current []problem.Condition) *agent {
	tb.Helper()
	must := func(err error) {
		if err != nil {
			tb.Helper()
			tb.Fatal(err)
		}
	}
	dir = filepath.Join(dir, node)
	must(os.Mkdir(dir, 0o700))
	config = rest.CopyConfig(config)
	config.Dial = (&net.Dialer{}).DialContext // agents with one and the same configuration share connections
	connection, err := rest.HTTPClientFor(config)
	must(err)
	client, err := kubernetes.NewForConfigAndClient(config, connection)
	must(err)
	a := &agent{tb: tb, node: node, pod: pods.Pod{UID: "uid-of-" + node, Namespace: namespace, Name: "app-" + node}, current: current}
	journals := filepath.Join(dir, "journal")
	a.journal, err = journal.Open(journals, journal.Options{MaxBytes: 1 << 20})
	must(err)
	log := slog.New(slog.DiscardHandler)
	a.conditions, err = conditions.New(conditions.Config{
		Client: client, Node: node, StateFile: filepath.Join(dir, "conditions.json"), Allied: []string{lease.Controller}, Log: log,
	})
	must(err)
	a.lease, err = lease.New(lease.Config{
		Client: client, Node: node, Namespace: namespace, Version: "test", Log: log,
		Types: a.conditions.Types, OnEarlier: a.conditions.Retire,
	})
	must(err)
	a.events, err = events.New(events.Config{
		Node: node, Client: client, Pods: podMap{a.pod.UID: a.pod}, Dir: dir, JournalDir: journals, JournalSeq: a.journal.Seq(), Log: log,
	})
	must(err)
	return a
}

// start reports until ctx ends.
func (a *agent) start(ctx context.Context) {
	a.set()
	for _, run := range []func(context.Context) error{a.conditions.Run, a.lease.Run, a.events.Run} {
		a.running.Go(func() {
			if err := run(ctx); err != nil && !errors.Is(err, context.Canceled) {
				a.tb.Errorf("%s: %v", a.node, err)
			}
		})
	}
}

func (a *agent) set() {
	if err := a.conditions.Set(slices.Clone(a.current)); err != nil {
		a.tb.Errorf("%s: %v", a.node, err)
	}
}

// tell is what the command does with a step of the engine.
func (a *agent) tell(tr ...problem.Transition) {
	e := journal.Entry{Now: time.Now(), Event: &event.Event{CPU: 1}, Transitions: tr}
	seq, err := a.journal.Append(e)
	if err != nil {
		a.tb.Error(err)
		return
	}
	e.Seq = seq
	a.events.Entry(e)
	for _, t := range tr {
		if t.Condition != nil {
			i := slices.IndexFunc(a.current, func(c problem.Condition) bool { return c.Type == t.Condition.Type })
			a.current[i] = *t.Condition
			a.set()
		}
	}
}

// quiet reports whether the API server has all that was told.
func (a *agent) quiet(happened uint64) bool {
	s, sum := a.events.Stats(), uint64(0)
	for _, r := range s.Rules {
		sum += r.Happened
	}
	_, all := a.conditions.Acked()
	return all && sum == happened && s.Waiting == 0 && s.LostEntries == 0
}

// check fails the test for anything that did not go as it should. Answers of a server
// that is busy are tolerated where there were any.
func (a *agent) check(busy bool) {
	a.tb.Helper()
	k := a.conditions.Stats()
	for outcome, n := range k.Writes {
		if outcome != conditions.Written && n > 0 && (!busy || outcome != conditions.Throttled) {
			a.tb.Errorf("%s: %d writes of conditions: %s", a.node, n, outcome)
		}
	}
	if k.Flips+k.Contested+k.Refused+k.Trimmed > 0 || k.Watches != 1 {
		a.tb.Errorf("%s: conditions: %+v", a.node, k)
	}
	l := a.lease.Stats()
	for outcome, n := range l.Renewals {
		if outcome != lease.Renewed && outcome != lease.Created && n > 0 && (!busy || outcome != lease.Throttled) {
			a.tb.Errorf("%s: %d renewals of the Lease: %s", a.node, n, outcome)
		}
	}
	if l.Superseded || l.Reads != 1 && !busy {
		a.tb.Errorf("%s: Lease: %+v", a.node, l)
	}
	e := a.events.Stats()
	for name, r := range e.Rules {
		if len(r.Dropped)+len(r.Untold) > 0 {
			a.tb.Errorf("%s: Events of %s: %+v", a.node, name, r)
		}
	}
	if e.Recreated > 0 || e.Failed > 0 && !busy || e.Waiting > 0 || e.LostEntries > 0 {
		a.tb.Errorf("%s: Events: %+v", a.node, e)
	}
}
