package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/pods"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/trigger"
	"github.com/kernosis/kernosis/diagnose/worker"
	"github.com/kernosis/kernosis/diagnose/worker/kube"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/reporter/kube/conditions"
	"github.com/kernosis/kernosis/reporter/kube/events"
	"github.com/kernosis/kernosis/reporter/kube/lease"
)

// Reasons that agents report.
const (
	reasonFault  = "FleetFault" // of the condition that is True on all nodes
	reasonNode   = "FleetNode"  // of problems without a pod
	reasonPod    = "FleetPod"
	reasonRepair = "FleetRepair" // of the problem that starts a Diagnosis

	ruleRepair = "fleet-repair"
)

func nodeName(i int) string { return fmt.Sprintf("fleet-%05d", i) }

// podOf returns the name of a node's pod.
func podOf(node string) string { return "app-" + node }

// countedConn counts the bytes that it sends on the network.
type countedConn struct {
	net.Conn
	sent *atomic.Int64
}

func (c countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.sent.Add(int64(n))
	return n, err
}

// agent is the part of an agent that talks to the API server, wired like the command, with the
// product's timing, but without heartbeats, so that idle agents write only Leases. A list of
// conditions replaces collectors and engine.
type agent struct {
	node, namespace string
	journal         *journal.Journal
	conditions      *conditions.Patcher
	lease           *lease.Keeper
	events          *events.Sink
	pods            *pods.Watch
	worker          *worker.Worker // nil if diagnoses are switched off
	store           *kube.Store
	running         sync.WaitGroup
	stop            context.CancelFunc

	mu       sync.Mutex
	current  []problem.Condition
	reported map[string]int // how often each was reported, as the Events must say: "KIND REASON"
	sum      uint64         // of the reports on the Node
	errs     []string
}

// newAgent returns an agent with its own connection, like an agent on its own node.
func newAgent(config *rest.Config, sent *atomic.Int64, node, namespace, dir string, current []problem.Condition, builtins []operation.Builtin) (*agent, error) {
	dir = filepath.Join(dir, node)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	config, err := connection(config, sent)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	meta, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	a := &agent{node: node, namespace: namespace, current: current, reported: map[string]int{}}
	journals, log := filepath.Join(dir, "journal"), slog.New(slog.DiscardHandler)
	var errs [6]error
	a.journal, errs[0] = journal.Open(journals, journal.Options{MaxBytes: 1 << 20})
	a.pods, errs[1] = pods.NewWatch(pods.WatchConfig{Client: meta, Node: node})
	a.conditions, errs[2] = conditions.New(conditions.Config{
		Client: client, Node: node, StateFile: filepath.Join(dir, "conditions.json"), Log: log,
	})
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	a.lease, errs[3] = lease.New(lease.Config{
		Client: client, Node: node, Namespace: namespace, Version: "test", Log: log,
		Types: a.conditions.Types, OnEarlier: a.conditions.Retire,
	})
	a.events, errs[4] = events.New(events.Config{
		Node: node, Client: client, Pods: a.pods, Dir: dir, JournalDir: journals, JournalSeq: a.journal.Seq(),
		JournalWritten: a.journal.Written, Log: log,
	})
	if builtins != nil {
		errs[5] = a.openWorker(config, dir, builtins, log)
	}
	return a, errors.Join(errs[:]...)
}

// connection returns a configuration whose clients share one connection that nobody else uses.
func connection(config *rest.Config, sent *atomic.Int64) (*rest.Config, error) {
	own := rest.CopyConfig(config)
	own.WrapTransport = nil
	own.BearerToken = ""
	own.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		return countedConn{c, sent}, err
	}
	transport, err := rest.TransportFor(own)
	if err != nil {
		return nil, err
	}
	shared := rest.CopyConfig(config)
	shared.TLSClientConfig, shared.Transport = rest.TLSClientConfig{}, transport
	return shared, nil
}

func (a *agent) openWorker(config *rest.Config, dir string, builtins []operation.Builtin, log *slog.Logger) (err error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 20, 40 // the agent's own defaults
	dir = filepath.Join(dir, "diagnose")
	a.store, err = kube.New(kube.Config{
		REST: config, Node: a.node, Dir: dir, Log: log,
		Builtin: func(name string) bool { _, ok := operation.Lookup(builtins, name); return ok },
	})
	if err != nil {
		return err
	}
	a.worker, err = worker.New(worker.Config{
		Node: a.node, Namespace: a.namespace, Dir: dir, Store: a.store, Builtins: builtins, Log: log, PodsKnown: a.pods.Known,
		Pod: func(uid string) *trigger.Pod {
			p, ok := a.pods.Pod(uid)
			if !ok {
				return nil
			}
			return &trigger.Pod{Namespace: p.Namespace, Name: p.Name, UID: p.UID, Labels: p.Labels, Node: a.node}
		},
		PodUID: func(namespace, name string) string { p, _ := a.pods.Named(namespace, name); return p.UID },
	})
	return err
}

// start reports until ctx ends.
func (a *agent) start(ctx context.Context) {
	a.set()
	all := []func(context.Context) error{a.conditions.Run, a.lease.Run, a.pods.Run, a.events.Run}
	if a.worker != nil {
		all = append(all, a.worker.Run)
	}
	for _, run := range all {
		a.running.Go(func() {
			if err := run(ctx); err != nil && !errors.Is(err, context.Canceled) {
				a.failed(err)
			}
		})
	}
}

func (a *agent) failed(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.errs = append(a.errs, err.Error())
}

func (a *agent) set() {
	a.mu.Lock()
	list := slices.Clone(a.current)
	a.mu.Unlock()
	if err := a.conditions.Set(list); err != nil {
		a.failed(err)
	}
}

// report handles a step of the engine like the command.
func (a *agent) report(tr problem.Transition) {
	e := journal.Entry{Now: time.Now(), Event: &event.Event{CPU: 1}, Transitions: []problem.Transition{tr}}
	if a.worker != nil {
		a.worker.Observe(e.Transitions, e.Now)
	}
	seq, _, err := a.journal.Add(e)
	if err = errors.Join(err, a.journal.Flush()); err != nil {
		a.failed(err)
		return
	}
	e.Seq = seq
	a.events.Add(e)
	a.events.Flush(e.Seq)
	a.mu.Lock()
	if p := tr.Problem; p != nil && p.State == problem.Firing {
		a.sum++
		a.reported["Node "+p.Reason]++
		if p.Pod != "" {
			a.reported["Pod "+p.Reason]++
		}
	}
	if c := tr.Condition; c != nil {
		a.sum++
		a.reported["Node "+c.Reason]++
		a.current[slices.IndexFunc(a.current, func(k problem.Condition) bool { return k.Type == c.Type })] = *c
	}
	a.mu.Unlock()
	if tr.Condition != nil {
		a.set()
	}
}

// flip sets the status of the first condition.
func (a *agent) flip(to problem.Status, healthy *problem.Condition) {
	c := *healthy
	if to == problem.True {
		c.Status, c.Reason, c.Message = to, reasonFault, "the file server does not answer"
	}
	c.LastTransition = time.Now()
	a.report(problem.Transition{Condition: &c})
}

// burst reports a number of problems, alternately of the node and of its pod.
func (a *agent) burst(times int) {
	now := time.Now()
	pod, _ := a.pods.Named(a.namespace, podOf(a.node))
	for n := range times {
		p := &problem.Problem{Rule: "fleet", Group: "node", Reason: reasonNode, Message: "a problem of the node"}
		if n%2 == 1 {
			p = &problem.Problem{Rule: "fleet-pod", Group: "pod", Pod: pod.UID, Reason: reasonPod, Message: "a problem of the pod"}
		}
		p.Severity, p.State, p.FirstSeen, p.LastSeen = problem.Warning, problem.Firing, now, now
		a.report(problem.Transition{Problem: p})
	}
}

// repair reports the problem that starts a Diagnosis, or its end.
func (a *agent) repair(state problem.State) {
	now := time.Now()
	a.report(problem.Transition{Problem: &problem.Problem{
		Rule: ruleRepair, Group: "node", Reason: reasonRepair, Message: "a problem to be repaired", Severity: problem.Critical,
		State: state, Subject: a.node, FirstSeen: now, LastSeen: now, Since: now, Count: 1,
	}})
}

// settled reports whether everything reported is in the API server, except Diagnoses.
func (a *agent) settled() bool {
	s, sum := a.events.Stats(), uint64(0)
	for _, r := range s.Rules {
		sum += r.Happened
	}
	all := !a.conditions.Stats().Pending
	a.mu.Lock()
	defer a.mu.Unlock()
	return all && sum == a.sum && s.Waiting == 0 && s.LostEntries == 0 && !a.lease.Stats().LastRenewed.IsZero()
}

// mistakes returns what went wrong. hurt says that the API server was busy or stopped, so that
// requests may have failed and watches ended.
func (a *agent) mistakes(hurt bool) (list []string) {
	wrong := func(ok bool, what string, values any) {
		if !ok {
			list = append(list, fmt.Sprintf("%s: %s: %+v", a.node, what, values))
		}
	}
	a.mu.Lock()
	wrong(len(a.errs) == 0, "errors", a.errs)
	a.mu.Unlock()
	k := a.conditions.Stats()
	failures := func(n uint64) bool { return n == 0 || hurt }
	for outcome, n := range k.Writes {
		wrong(outcome == conditions.Written || failures(n), "writes of conditions: "+string(outcome), n)
	}
	wrong(k.Flips+k.Contested+k.Refused+k.Trimmed == 0 && (k.Watches == 1 || hurt), "conditions", k)
	l := a.lease.Stats()
	for outcome, n := range l.Renewals {
		wrong(outcome == lease.Renewed || outcome == lease.Created || failures(n), "renewals of the Lease: "+string(outcome), n)
	}
	wrong(!l.Superseded && (l.Reads == 1 || hurt), "Lease", l)
	e := a.events.Stats()
	for name, r := range e.Rules {
		wrong(len(r.Dropped)+len(r.Unreported) == 0, "Events of "+name, r)
	}
	for outcome, n := range e.Requests {
		wrong(outcome == events.Created || outcome == events.Patched || n == 0 || outcome != events.Recreated && hurt, "Events: "+string(outcome), n)
	}
	wrong(e.LostEntries == 0, "Events", e)
	if a.worker != nil {
		w := a.worker.Stats()
		wrong(len(w.Dropped) == 0 && w.Damaged == 0 && w.Unsaved == 0 && w.Refused == 0, "Diagnoses", w)
	}
	return list
}

// expected adds what a node's Events must say, in the form that checkEvents uses.
func (a *agent) expected(into map[string]int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for what, n := range a.reported {
		kind, reason, _ := strings.Cut(what, " ")
		name, namespace := a.node, metav1.NamespaceDefault
		if kind == "Pod" {
			name, namespace = podOf(a.node), a.namespace
		}
		into[strings.Join([]string{namespace, kind, name, reason}, " ")] = n
	}
}
