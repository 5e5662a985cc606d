package fleet

import (
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/diagnose/api/apitest"
	"github.com/kernosis/kernosis/reporter/kube/events"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/kubetest/process"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// root is the folder of the checkout.
const root = "../.."

// readyFor is how long the API server may take to be ready while all agents connect to it again.
const readyFor = 20 * time.Minute

// crewSize is the number of agents per process: each has five open files and 40 goroutines.
const crewSize = 1250

// fleet is one run of the simulation.
type fleet struct {
	testing.TB
	nodes       int
	diagnose    bool          // with controllers and Diagnoses
	rollout     time.Duration // time within which agents start
	idleFor     time.Duration // duration of an idle phase
	server      *kubetest.Server
	namespace   string
	token       string // of the agents
	crews       []*crew
	controllers []*leading
	counted     int   // restarts already attributed to a row
	restarts    int   // controllers that exited by themselves
	metered     int   // restarts since which the leader is known again
	limit       int64 // memory of a controller, in bytes
	tally       *tally
	meter       *meter
	unfair      func()
	faulty      bool // the condition is True on all nodes
	hurt        bool // requests have failed, or may have failed, and agents have counted that
	healthy     []problem.Condition
	rows        []*row
	wrong       []string
	done        bool          // all phases have run
	scarce      chan struct{} // closed when the machine is about to run out of memory
	watch       watchCost
	version     string            // of Kubernetes
	fresh       map[program]usage // before any agent
}

// row holds the measurements of a phase.
type row struct {
	Phase            string
	Lasted           time.Duration
	Settled          time.Duration // until everything was written; 0 if nothing was awaited
	Note             string
	Written          written
	Asked            spell
	Sent             int64 // bytes sent by agents
	EtcdGrowth       int64
	Revisions        int64
	Watches          float64 // open at the end of the phase
	Shown, ShownSize float64 // events that watches received, and their bytes
	Refused          float64 // requests that found no room in the API server's queues
	Used             map[program]usage
}

// run runs the phases and records measurements and errors.
func (f *fleet) run(all []func(*fleet)) {
	f.Helper()
	f.tally, f.meter, f.scarce = newTally(), newMeter(), make(chan struct{})
	f.setUp()
	for _, phase := range all {
		phase(f)
	}
	f.tally.mu.Lock()
	defer f.tally.mu.Unlock()
	f.wrong = append(f.wrong, f.tally.damaged...)
	f.done = true
}

func (f *fleet) setUp() {
	f.Helper()
	began := time.Now()
	dir := f.stateDir()
	f.say("starting etcd and kube-apiserver; %d Nodes with a pod each", f.nodes)
	f.server = kubetest.New(f.TB, kubetest.Options{Flags: []string{"--event-ttl=24h"}, ReadyWithin: readyFor})
	version, err := f.server.Client().Discovery().ServerVersion()
	if err != nil {
		f.Fatal(err)
	}
	f.version = version.GitVersion
	f.meterServer()
	f.server.CRDs(f.TB)
	f.namespace = f.server.Namespace(f.TB)
	grantAgents(f.TB, f.server, f.namespace)
	f.token = f.server.Token(f.TB, kubetest.TokenFor{Namespace: f.namespace, ServiceAccount: agentAccount})
	user := f.server.WithToken(f.token)
	f.unfair = fair(f.TB, f.server, f.namespace, user)
	makeNodes(f.TB, f.server, f.namespace, f.nodes)
	makeRepairs(f.TB, apitest.Client(f.TB, f.server.Admin()))
	f.server.EtcdChanges(f.TB, func(c kubetest.Change) { f.tally.note(c, time.Now()) })
	if f.diagnose {
		f.limit = memoryLimit(f.TB, filepath.Join(root, "deploy/chart/kernosis/values.yaml"))
		f.controllers = startControllers(f.TB, f.server, f.namespace, f.limit)
		f.meterControllers()
	}
	if f.healthy, err = healthy(); err != nil {
		f.Fatal(err)
	}
	for first := 0; first < f.nodes; first += crewSize {
		f.crews = append(f.crews, newCrew(f.TB, crewOf{
			Host: user.Host, Token: f.token, CA: user.CAData, Namespace: f.namespace, Dir: dir,
			First: first, Count: min(crewSize, f.nodes-first), Diagnose: f.diagnose,
		}))
	}
	var pids []int
	for _, c := range f.crews {
		pids = append(pids, c.cmd.Process.Pid)
	}
	f.meter.set(programAgents, pids...)
	end, ended := make(chan struct{}), make(chan struct{})
	f.Cleanup(func() { close(end); <-ended })
	go func() {
		defer close(ended)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				f.meter.look()
				if free, err := available(); err == nil && free < keepFree {
					f.Errorf("the machine has %d MiB of memory left; fewer NODES take less", free>>20)
					close(f.scarce)
					<-end
					return
				}
			case <-end:
				return
			}
		}
	}()
	f.fresh = f.meter.next()
	f.say("ready after %s", round(time.Since(began)))
}

func (f *fleet) meterServer() {
	pids := f.server.Processes()
	f.meter.set(programEtcd, pids[0])
	f.meter.set(programAPI, pids[1])
}

func (f *fleet) meterControllers() {
	first := leaderOf(f.TB, f.controllers)
	if first == nil {
		f.Fatal("no controller leads")
	}
	f.meter.set(programLeader, first.PID())
	for _, c := range f.controllers {
		if c != first && c.Running() {
			f.meter.set(programSpare, c.PID())
			return
		}
	}
	f.meter.set(programSpare)
}

// stateDir returns a folder for the agents' state, in memory if possible, because many agents share
// the disk that each would have for itself.
func (f *fleet) stateDir() string {
	f.Helper()
	in := os.TempDir()
	if st, err := os.Stat("/dev/shm"); err == nil && st.IsDir() {
		in = "/dev/shm"
	}
	dir, remove, err := process.TempDir(in, "kernosis-fleet-")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		if err := remove(); err != nil {
			f.Error(err)
		}
	})
	return dir
}

// memoryLimit returns the chart's memory limit of the controller.
func memoryLimit(tb testing.TB, values string) int64 {
	tb.Helper()
	text, err := os.ReadFile(values)
	if err != nil {
		tb.Fatal(err)
	}
	var v struct {
		Controller struct{ Resources corev1.ResourceRequirements }
	}
	if err := yaml.Unmarshal(text, &v); err != nil {
		tb.Fatal(err)
	}
	limit := v.Controller.Resources.Limits[corev1.ResourceMemory]
	if limit.Cmp(resource.Quantity{}) <= 0 {
		tb.Fatalf("%s has no memory limit of the controller", values)
	}
	return limit.Value()
}

func (f *fleet) say(format string, args ...any) {
	fmt.Fprintf(f.Output(), time.Now().Format("15:04:05 ")+format+"\n", args...)
}

// fault records an error and continues.
func (f *fleet) fault(phase, format string, args ...any) {
	text := phase + ": " + fmt.Sprintf(format, args...)
	f.say("WRONG: %s", text)
	f.wrong = append(f.wrong, text)
}

// faults records errors from a list, up to maxReported.
func (f *fleet) faults(phase string, list []string) {
	for _, text := range list[:min(len(list), maxReported)] {
		f.fault(phase, "%s", text)
	}
	if more := len(list) - maxReported; more > 0 {
		f.fault(phase, "and %d more", more)
	}
}

// counters are counters of the API server and etcd.
type counters struct{ watches, shown, shownSize, refused, size, puts float64 }

func (f *fleet) counters() counters {
	f.Helper()
	m, e := f.server.APIMetrics(f.TB), f.server.EtcdWrites(f.TB)
	c := counters{size: float64(e.Size), puts: float64(e.Puts)}
	c.watches = m.Sum("apiserver_longrunning_requests", "verb", "WATCH")
	c.shown = m.Sum("apiserver_watch_events_sizes")
	for _, reason := range []string{"queue-full", "concurrency-limit"} {
		c.refused += m.Sum("apiserver_flowcontrol_rejected_requests_total", "reason", reason)
	}
	for _, one := range m["apiserver_watch_events_sizes"].GetMetric() {
		c.shownSize += one.GetHistogram().GetSampleSum()
	}
	return c
}

// measure runs a phase; hurt says that requests may fail in it.
func (f *fleet) measure(phase string, hurt bool, do func(r *row)) *row {
	f.Helper()
	r := &row{Phase: phase}
	f.say("%s …", phase)
	before, used, asked := f.counters(), f.meter.next(), ask(f.TB, f.crews, order{Do: "look", Hurt: true})
	f.tally.next()
	began := time.Now()
	do(r)
	r.Lasted = time.Since(began)
	r.Written, r.Used = f.tally.next(), f.meter.next()
	f.hurt = f.hurt || hurt
	after, now := f.counters(), ask(f.TB, f.crews, order{Do: "look", Hurt: f.hurt})
	if !f.hurt && now.Requests.Busy > 0 { // judged below
		f.hurt, now.Mistakes = true, ask(f.TB, f.crews, order{Do: "look", Hurt: true}).Mistakes
	}
	for p, u := range r.Used {
		u.CPU -= used[p].CPU
		r.Used[p] = u
	}
	r.Asked, r.Sent = now.Requests, now.Sent-asked.Sent
	r.EtcdGrowth, r.Revisions = int64(after.size-before.size), int64(after.puts-before.puts)
	r.Watches = after.watches
	// A restarted server counts from zero.
	less := func(a, b float64) float64 { return a - b*float64(min(1, math.Floor(a/max(b, 1)))) }
	r.Shown, r.ShownSize, r.Refused = less(after.shown, before.shown), less(after.shownSize, before.shownSize), less(after.refused, before.refused)
	f.rows = append(f.rows, r)
	f.judge(r, hurt, now.Mistakes)
	f.say("%s: %s", phase, r)
	return r
}

// judge checks what must hold in every phase.
func (f *fleet) judge(r *row, hurt bool, mistakes []string) {
	f.faults(r.Phase, mistakes)
	// If this machine gives the API server too little CPU, requests wait longer than it allows, and
	// get 429, too. Not all of these are in its metric for "time-out": one that is dispatched at
	// that moment is in none.
	if !hurt && r.Refused > 0 {
		f.fault(r.Phase, "%.0f requests found the API server's queues full; answers 429: %v", r.Refused, r.Asked.Throttled)
	}
	if !hurt && r.Asked.Failures > 0 {
		f.fault(r.Phase, "%d requests failed: %s", r.Asked.Failures, strings.Join(r.Asked.Failed[:min(3, len(r.Asked.Failed))], "; "))
	}
	for k, n := range r.Written.Repeated {
		if n > 0 {
			f.fault(r.Phase, "%d of %d writes of %s changed nothing but times", n, r.Written.Kinds[k].Writes, kind(k))
		}
	}
	if n := r.Written.Spoken; n > 0 {
		f.fault(r.Phase, "conditions of %d agents that had renewed their Lease became Unknown", n)
	}
	if n := r.Written.Silent; n > 0 {
		// On an overloaded machine the Leases of single agents are late.
		if text := fmt.Sprintf("%d agents did not renew their Lease in time, the longest for %s", n, round(r.Written.Longest)); n <= f.nodes/100 {
			r.Note = strings.TrimPrefix(r.Note+"; "+text, "; ")
		} else {
			f.fault(r.Phase, "%s", text)
		}
	}
	for _, p := range []program{programLeader, programSpare} {
		if u := r.Used[p]; f.limit > 0 && u.RSS > f.limit {
			f.fault(r.Phase, "%s took %d MiB, its limit is %d", p, u.RSS>>20, f.limit>>20)
		}
	}
	for _, c := range f.controllers {
		if !c.Running() {
			f.fault(r.Phase, "%v", c.Explain("has ended"))
		}
	}
	if n := f.restarts - f.counted; n > 0 {
		f.counted = f.restarts
		r.Note = strings.TrimPrefix(r.Note+fmt.Sprintf("; controllers ended and were started again %d times", n), "; ")
	}
}

// quiet checks that a phase wrote only Leases.
func (f *fleet) quiet(r *row) {
	for k, c := range r.Written.Kinds {
		switch kind(k) {
		case kindLease, kindServers:
		case kindOther:
			if c.Writes > 0 {
				f.fault(r.Phase, "%d writes of other objects: %v", c.Writes, r.Written.Others)
			}
		default:
			if c.Writes > 0 {
				f.fault(r.Phase, "%d writes of %s, though nothing has happened", c.Writes, kind(k))
			}
		}
	}
	if want := float64(f.nodes) * r.Lasted.Seconds() / leaseEvery.Seconds(); float64(r.Written.Kinds[kindLease].Writes) > 1.15*want+5 {
		f.fault(r.Phase, "%d writes of Leases, want %.0f", r.Written.Kinds[kindLease].Writes, want)
	}
}

// until waits until ok returns true, and fails the run if that takes too long for this machine. It
// polls twice a second, because a poll takes CPU from the agents.
func (f *fleet) until(what string, within time.Duration, ok func() (bool, string)) time.Duration {
	f.Helper()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); ; {
		f.tend()
		is, shown := ok()
		waited := time.Since(began)
		switch {
		case is:
			return waited
		case waited > within && waited > testenv.Within(within):
			f.Fatalf("waited %s for: %s; last: %s", round(waited), what, shown)
		}
		select {
		case <-tick.C:
		case <-f.scarce:
			f.FailNow()
		}
	}
}

// sleep waits, and tends the controllers meanwhile.
func (f *fleet) sleep(d time.Duration) {
	f.Helper()
	began := time.Now()
	f.until("time to pass", d+time.Minute, func() (bool, string) { return time.Since(began) >= d, "" })
}

// settled waits until no agent has anything left to report.
func (f *fleet) settled() time.Duration {
	f.Helper()
	return f.until("all agents are settled", 10*time.Minute, func() (bool, string) {
		n := ask(f.TB, f.crews, order{}).Settled
		return n == f.nodes, fmt.Sprintf("%d of %d are", n, f.nodes)
	})
}

// complete compares the API server's objects with what agents were given.
func (f *fleet) complete(phase string) {
	f.Helper()
	want := map[string]map[string]string{}
	for i := range f.nodes {
		own := map[string]string{"Ready": "True KubeletReady", "MemoryPressure": "False KubeletHasSufficientMemory"}
		for _, c := range f.healthy {
			own[c.Type] = string(c.Status) + " " + c.Reason
		}
		if f.faulty {
			own[f.healthy[0].Type] = "True " + reasonFault
		}
		want[nodeName(i)] = own
	}
	nodes, err1 := checkNodes(f.Context(), f.server, want)
	reported, err2 := checkEvents(f.Context(), f.server, events.Component, ask(f.TB, f.crews, order{Do: "expect"}).Events)
	for _, err := range []error{err1, err2} {
		if err != nil {
			f.Fatal(err)
		}
	}
	f.faults(phase, nodes)
	f.faults(phase, reported)
	if created, _, _ := f.tally.diagnoses(); created != 0 && created != f.nodes {
		f.fault(phase, "%d Diagnoses were created, want one a node", created)
	}
}

// phases returns the possible phases by name.
func phases() map[string]func(*fleet) {
	return map[string]func(*fleet){
		"watches": (*fleet).watches, "start": (*fleet).start, "idle": (*fleet).idle, "storm": (*fleet).storm, "unfair": (*fleet).unfairly,
		"open": (*fleet).open, "wait": (*fleet).wait, "repair": (*fleet).repair, "failover": (*fleet).failover,
		"restart": (*fleet).restart, "stop": (*fleet).stop,
	}
}

// parsePhases parses a list of names.
func parsePhases(tb testing.TB, text string) (all []func(*fleet)) {
	tb.Helper()
	for name := range strings.SplitSeq(text, ",") {
		phase := phases()[name]
		if phase == nil {
			tb.Fatalf("there is no phase %q, but %s", name, strings.Join(slices.Sorted(maps.Keys(phases())), ", "))
		}
		all = append(all, phase)
	}
	return all
}

func round(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }
