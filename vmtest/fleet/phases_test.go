package fleet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/diagnose/api/apitest"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/reporter/kube/lease"
)

const (
	leaseEvery = lease.DefaultInterval
	// In a storm one agent in burstEvery reports burstTimes problems.
	burstEvery, burstTimes = 10, 200
	// downFor is how long the API server stays stopped.
	downFor = 5 * time.Second
	// stillFor is how long nothing must have changed for everything to be done: an agent writes a
	// Diagnosis every 5 s.
	stillFor = 12 * time.Second
	// repairFor is how long nodes are repaired.
	repairFor = time.Minute
	// leadWithin is how long a failover may take: a Lease of 15 s, and the start of the new leader.
	leadWithin = 45 * time.Second
)

// start starts all agents.
func (f *fleet) start() {
	f.Helper()
	r := f.measure(fmt.Sprintf("start within %s", round(f.rollout)), false, func(r *row) {
		began := time.Now()
		ask(f.TB, f.crews, order{Do: "start", Over: f.rollout})
		f.settled()
		r.Settled = time.Since(began)
	})
	nodes, leases := r.Written.Kinds[kindNode], r.Written.Kinds[kindLease]
	if nodes.Writes != f.nodes || leases.Writes < f.nodes || r.Written.Kinds[kindEvent].Writes > 0 {
		f.fault(r.Phase, "%d writes of Nodes, %d of Leases, %d of Events", nodes.Writes, leases.Writes, r.Written.Kinds[kindEvent].Writes)
	}
	// Agents that start at once must not all write at once.
	if peak := max(nodes.Peak, leases.Peak); peak > max(f.nodes*3/4, 10) {
		f.fault(r.Phase, "%d writes in a second", peak)
	}
	f.complete(r.Phase)
	// An agent's first minute is not typical.
	f.sleep(min(f.idleFor, leaseEvery))
}

// idle does nothing.
func (f *fleet) idle() {
	f.Helper()
	f.quiet(f.measure("idle", false, func(*row) { f.sleep(f.idleFor) }))
}

// storm changes a condition on all nodes at the same moment, while a tenth reports problems.
func (f *fleet) storm() {
	f.Helper()
	f.stormAs("storm", true)
}

// unfairly is a storm without the agents' own priority level.
func (f *fleet) unfairly() {
	f.Helper()
	f.unfair()
	f.stormAs("storm without a priority level", false)
	f.unfair = fair(f.TB, f.server, f.namespace, f.server.WithToken(f.token))
}

func (f *fleet) stormAs(name string, fair bool) {
	f.Helper()
	r := f.measure(name, !fair, func(r *row) {
		began := time.Now()
		f.flipAll()
		ask(f.TB, f.crews, order{Do: "burst", Every: burstEvery, Times: burstTimes})
		f.until("the conditions are written", 10*time.Minute, func() (bool, string) {
			n := f.tally.count(kindNode)
			return n >= f.nodes, fmt.Sprintf("%d of %d are", n, f.nodes)
		})
		r.Note = fmt.Sprintf("conditions after %s", round(time.Since(began)))
		f.settled()
		r.Settled = time.Since(began)
		if !fair {
			r.Note += fmt.Sprintf("; %d answers are 429", ask(f.TB, f.crews, order{Do: "look", Hurt: true}).Requests.Busy)
		}
	})
	if n := r.Written.Kinds[kindNode].Writes; n != f.nodes {
		f.fault(r.Phase, "%d writes of Nodes, want one a node", n)
	}
	f.complete(r.Phase)
}

// flipAll changes the first condition on all nodes.
func (f *fleet) flipAll() {
	f.faulty = !f.faulty
	ask(f.TB, f.crews, order{Do: "flip", Status: status(f.faulty)})
}

func status(faulty bool) problem.Status {
	if faulty {
		return problem.True
	}
	return problem.False
}

// open makes each agent report a problem that starts a Diagnosis, which inspects the node and then
// waits for approval to repair it.
func (f *fleet) open() {
	f.Helper()
	f.measure("a Diagnosis of each node", false, func(r *row) {
		began := time.Now()
		ask(f.TB, f.crews, order{Do: "repair"})
		f.until("all Diagnoses wait", time.Hour, func() (bool, string) {
			created, phases, waits := f.tally.diagnoses()
			done := waits[v1alpha1.ReasonAwaitingApproval] + waits[v1alpha1.ReasonBudgetExhausted] + phases[string(v1alpha1.PhaseSucceeded)]
			r.Note = fmt.Sprintf("%d await approval, %d budget", waits[v1alpha1.ReasonAwaitingApproval], waits[v1alpha1.ReasonBudgetExhausted])
			// The controller sends its Events at a limited rate.
			still := time.Since(f.tally.lastMoved(kindDiagnosis)) > stillFor && time.Since(f.tally.lastMoved(kindEvent)) > stillFor
			return created == f.nodes && done == f.nodes && still,
				fmt.Sprintf("%d created, phases %v, waits %v", created, phases, waits)
		})
		f.settled()
		r.Settled = f.tally.lastMoved(kindDiagnosis).Sub(began)
	})
	f.complete("a Diagnosis of each node")
}

// wait does nothing while a Diagnosis of each node waits.
func (f *fleet) wait() {
	f.Helper()
	f.quiet(f.measure("idle, with a waiting Diagnosis of each node", false, func(*row) { f.sleep(f.idleFor) }))
}

// repair lets the nodes of a small budget recover, one after the other, while conditions of others
// change.
func (f *fleet) repair() {
	f.Helper()
	flips, repaired := 0, 0
	r := f.measure("repairs under a budget, nodes change", false, func(r *row) {
		odd := make([]bool, f.nodes)
		for end := time.Now().Add(repairFor); time.Now().Before(end); {
			var to [2][]string
			for range max(f.nodes/200, 1) {
				i := rand.IntN(f.nodes)
				if slices.Contains(to[0], nodeName(i)) || slices.Contains(to[1], nodeName(i)) {
					continue
				}
				odd[i] = !odd[i]
				k := 0
				if odd[i] {
					k = 1
				}
				to[k] = append(to[k], nodeName(i))
			}
			f.flip(to[0], f.faulty)
			f.flip(to[1], !f.faulty)
			flips += len(to[0]) + len(to[1])
			repaired += f.giveBack()
			f.sleep(time.Second)
		}
		var back []string
		for i, is := range odd {
			if is {
				back = append(back, nodeName(i))
			}
		}
		flips += len(back)
		f.flip(back, f.faulty)
		r.Settled = f.settled()
		most, ever, twice := f.tally.most()
		_, _, waits := f.tally.diagnoses()
		r.Note = fmt.Sprintf("%d changes of conditions, %d nodes repaired, %d wait; at most %d of %d at once", flips, repaired, waits[v1alpha1.ReasonBudgetExhausted], most, budget)
		if most > budget || len(twice) > 0 {
			f.fault("repair", "%d nodes at once, the budget is %d; %d were cordoned, twice: %v", most, budget, ever, twice)
		}
	})
	if n := r.Written.Kinds[kindNode].Writes; n > flips+4*(repaired+budget) {
		f.fault(r.Phase, "%d writes of Nodes for %d changes and %d repairs", n, flips, repaired)
	}
	if repaired == 0 {
		f.fault(r.Phase, "no node was repaired")
	}
	f.complete(r.Phase)
}

// flip sets the first condition of some nodes.
func (f *fleet) flip(nodes []string, faulty bool) {
	if len(nodes) > 0 {
		ask(f.TB, f.crews, order{Do: "flip", Status: status(faulty), Nodes: nodes})
	}
}

// giveBack ends the problems of nodes whose Diagnosis has succeeded, and returns how many.
func (f *fleet) giveBack() int {
	nodes := f.tally.ended()
	if len(nodes) > 0 {
		ask(f.TB, f.crews, order{Do: "resolve", Nodes: nodes})
	}
	return len(nodes)
}

// failover kills the leading controller.
func (f *fleet) failover() {
	f.Helper()
	f.measure("the leading controller is killed", true, func(r *row) {
		first := leaderOf(f.TB, f.controllers)
		if first == nil {
			f.Fatal("no controller leads")
		}
		began := time.Now()
		first.killed = true
		first.Stop(syscall.SIGKILL, 0)
		f.meter.set(programLeader)
		leads := f.until("another controller leads", leadWithin, func() (bool, string) { return leaderOf(f.TB, f.controllers) != nil, "none does" })
		first.start(f.TB)
		f.meterControllers()
		repaired := f.giveBack()
		f.until("another node is repaired", 5*time.Minute, func() (bool, string) {
			repaired += f.giveBack()
			_, _, waits := f.tally.diagnoses()
			left := waits[v1alpha1.ReasonBudgetExhausted]
			return repaired > budget || left == 0, fmt.Sprintf("%d are, %d wait", repaired, left)
		})
		r.Settled = time.Since(began)
		most, _, twice := f.tally.most()
		r.Note = fmt.Sprintf("another leads after %s; %d nodes repaired, at most %d of %d at once", round(leads), repaired, most, budget)
		if most > budget || len(twice) > 0 {
			f.fault("failover", "%d nodes at once, the budget is %d; twice: %v", most, budget, twice)
		}
	})
	f.complete("failover")
}

// restart kills the API server, and starts it again after a time in which all agents have something
// to report.
func (f *fleet) restart() {
	f.Helper()
	f.measure("the API server is killed and started", true, func(r *row) {
		f.server.Kill(f.TB)
		f.meter.set(programAPI)
		retries := f.server.Retries()
		f.flipAll()
		ask(f.TB, f.crews, order{Do: "burst", Every: burstEvery, Times: burstTimes})
		f.sleep(downFor)
		began := time.Now()
		f.server.Start(f.TB)
		f.meterServer()
		ready := time.Since(began)
		f.settled()
		r.Settled = time.Since(began)
		r.Note = fmt.Sprintf("ready %s after its start", round(ready))
		if n := f.server.Retries() - retries; n > 0 {
			r.Note += fmt.Sprintf("; it exited %d times while starting, and was started again", n)
		}
		if len(f.controllers) > 0 {
			lead := f.until("a controller leads", 5*time.Minute, func() (bool, string) {
				for _, c := range f.controllers {
					if !c.Running() {
						return false, "one has ended"
					}
				}
				return leaderOf(f.TB, f.controllers) != nil, "none does"
			})
			f.meterControllers()
			r.Note += fmt.Sprintf("; a controller leads %s after the rest", round(lead))
		}
	})
	f.complete("restart")
}

// stop shuts down all agents, at the pace of a rollout: an agent tries to record its end for 5 s, too
// short for thousands of them at once.
func (f *fleet) stop() {
	f.Helper()
	var drained int
	f.measure(fmt.Sprintf("agents end within %s", round(f.rollout)), true, func(r *row) {
		began := time.Now()
		drained = ask(f.TB, f.crews, order{Do: "stop", Over: f.rollout}).Drained
		r.Settled = time.Since(began)
	})
	if drained != f.nodes {
		f.fault("stop", "%d of %d Leases say that their agent has ended", drained, f.nodes)
	}
}

// watchCost is the cost of the watches on Diagnoses by node in the API server.
type watchCost struct {
	Watches int
	Bytes   int64         // of the API server's memory, per watch
	Alone   time.Duration // CPU time of one write of a Diagnosis without watches
	Among   time.Duration // with all watches, none of which receives it
}

// perWatch returns the cost of a write per watch that does not receive it.
func (c *watchCost) perWatch() time.Duration {
	return time.Duration(max(0, float64(c.Among-c.Alone)/float64(max(c.Watches, 1))))
}

// watches opens a watch per node, as agents do, and writes a Diagnosis that none of them receives.
// It runs before the agents: memory that the API server has freed and reuses would hide the cost.
func (f *fleet) watches() {
	f.Helper()
	const writes, perConnection = 200, 90
	c, w := apitest.Client(f.TB, f.server.Admin()), watchCost{Watches: f.nodes}
	d := &v1alpha1.Diagnosis{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "watched"}}
	d.Spec.OperationSet, d.Spec.NodeName = "fleet-none", "fleet-none"
	if err := c.Create(f.Context(), d); err != nil {
		f.Fatal(err)
	}
	write := func() time.Duration {
		before := f.meter.next()[programAPI].CPU
		for i := range writes {
			body := fmt.Appendf(nil, `{"metadata":{"annotations":{"fleet.example/write":"%d-%d"}}}`, i, time.Now().UnixNano())
			if err := c.Patch(f.Context(), d, client.RawPatch(types.MergePatchType, body)); err != nil {
				f.Fatal(err)
			}
		}
		f.sleep(time.Second) // for all watches to process the events
		return (f.meter.next()[programAPI].CPU - before) / writes
	}
	write()
	f.measure("a watch of Diagnoses by node for each", true, func(r *row) {
		w.Alone = write()
		f.sleep(2 * time.Second)
		f.meter.next()
		before := f.meter.next()[programAPI].RSS
		ctx, cancel := context.WithCancel(f.Context())
		var open sync.WaitGroup
		defer func() { cancel(); open.Wait() }()
		for first := 0; first < f.nodes; first += perConnection {
			config := f.server.Admin()
			config.Dial = new(net.Dialer).DialContext // a separate connection
			group := v1alpha1.GroupVersion()
			config.GroupVersion, config.APIPath, config.NegotiatedSerializer = &group, "/apis", scheme.Codecs.WithoutConversion()
			client, err := rest.RESTClientFor(config)
			if err != nil {
				f.Fatal(err)
			}
			for i := first; i < min(first+perConnection, f.nodes); i++ {
				body, err := client.Get().Resource("diagnoses").Param("watch", "1").Param("fieldSelector", "spec.nodeName="+nodeName(i)).Stream(ctx)
				if err != nil {
					f.Fatal(err)
				}
				open.Go(func() {
					defer body.Close()
					buf := make([]byte, 256)
					for {
						if _, err := body.Read(buf); err != nil {
							return
						}
					}
				})
			}
		}
		f.sleep(2 * time.Second)
		w.Bytes = (f.meter.next()[programAPI].RSS - before) / int64(f.nodes)
		w.Among = write()
		r.Note = fmt.Sprintf("%.1f KiB of the API server's memory each; a write of a Diagnosis takes it %.2f ms of CPU time, without them %.2f", float64(w.Bytes)/1024, ms(w.Among), ms(w.Alone))
	})
	if err := c.Delete(f.Context(), d); err != nil {
		f.Fatal(err)
	}
	f.watch = w
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
