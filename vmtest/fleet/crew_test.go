package fleet

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/catalog"
)

// crewEnv makes the test binary run agents. It reads its orders from standard input, one JSON
// object per line, and responds to each with a line.
const crewEnv = "KERNOSIS_FLEET_CREW"

// endFor is how long a crew may take to end.
const endFor = 30 * time.Second

// crewOf describes the agents of a process.
type crewOf struct {
	Host, Token, Namespace, Dir string
	CA                          []byte
	First, Count                int
	Diagnose                    bool // with a diagnosis worker each
}

// order is a command to agents.
type order struct {
	Do     string        // start, flip, burst, repair, resolve, look, expect, stop
	Over   time.Duration // start, stop: all within this time
	Status problem.Status
	Every  int // flip, burst: agents whose number is divisible by this; 0 for those in Nodes
	Times  int
	Nodes  []string
	Hurt   bool // look: requests may have failed
}

// state is the response to an order.
type state struct {
	Settled  int            // agents with nothing left to report
	Sent     int64          // bytes sent by all agents since the start
	Requests spell          // look: since the last look
	Mistakes []string       // look: mistakes of agents
	Events   map[string]int // expect: the expected Events
	Drained  int            // stop: agents whose Lease says that they have shut down
}

// runCrew is the main function of a crew's process.
func runCrew(in io.Reader, out io.Writer) error {
	klog.SetLogger(logr.Discard()) // errors are counted instead
	from, to := json.NewDecoder(in), json.NewEncoder(out)
	var of crewOf
	if err := from.Decode(&of); err != nil {
		return err
	}
	c, err := newCrewWork(of)
	if err != nil {
		return err
	}
	defer c.end(0)
	for {
		var o order
		if err := from.Decode(&o); errors.Is(err, io.EOF) {
			time.AfterFunc(endFor, func() { os.Exit(1) }) // the API server may be gone
			return nil
		} else if err != nil {
			return err
		}
		answer, err := c.do(&o)
		if err != nil {
			return err
		}
		if err := to.Encode(answer); err != nil {
			return err
		}
	}
}

// crewWork runs the agents of a crew, in the crew's process.
type crewWork struct {
	of       crewOf
	config   *rest.Config
	requests *requests
	sent     atomic.Int64
	healthy  []problem.Condition
	builtins []operation.Builtin
	agents   []*agent
	ctx      context.Context //nolint:containedctx // of the process
	cancel   context.CancelFunc
}

func newCrewWork(of crewOf) (*crewWork, error) {
	c := &crewWork{of: of, requests: &requests{}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.config = &rest.Config{
		Host: of.Host, BearerToken: of.Token, QPS: -1, UserAgent: "kernosis-agent/fleet", TLSClientConfig: rest.TLSClientConfig{CAData: of.CA},
		ContentConfig: rest.ContentConfig{ContentType: "application/vnd.kubernetes.protobuf", AcceptContentTypes: "application/vnd.kubernetes.protobuf,application/json"},
	}
	c.requests.through(c.config)
	var err error
	if c.healthy, err = healthy(); err != nil {
		return nil, err
	}
	if of.Diagnose {
		root := hostfs.New("/")
		c.builtins = catalog.All(operation.Host{FS: root})
	}
	return c, nil
}

// healthy returns the conditions of the shipped rules, all False.
func healthy() (list []problem.Condition, err error) {
	set, err := detector.Load(detector.Shipped())
	if err != nil {
		return nil, err
	}
	for _, c := range set.Conditions() {
		list = append(list, problem.Condition{Type: c.Type, Status: problem.False, Reason: c.HealthyReason, Message: c.HealthyMessage, LastTransition: time.Now()})
	}
	return list, nil
}

// do executes an order for all agents it addresses, concurrently.
func (c *crewWork) do(o *order) (*state, error) {
	var answer state
	switch o.Do {
	case "start":
		return &answer, c.start(o.Over)
	case "flip":
		c.each(o, func(a *agent) { a.flip(o.Status, &c.healthy[0]) })
	case "burst":
		c.each(o, func(a *agent) { a.burst(o.Times) })
	case "repair":
		c.each(o, func(a *agent) { a.repair(problem.Firing) })
	case "resolve":
		c.each(o, func(a *agent) { a.repair(problem.Resolved) })
	case "expect":
		answer.Events = map[string]int{}
		c.each(o, func(a *agent) { a.expected(answer.Events) })
	case "look":
		answer.Requests = c.requests.next()
		c.each(o, func(a *agent) { answer.Mistakes = append(answer.Mistakes, a.mistakes(o.Hurt)...) })
		answer.Mistakes = answer.Mistakes[:min(len(answer.Mistakes), maxReported)]
	case "stop":
		c.end(o.Over)
		c.each(o, func(a *agent) {
			if l := a.lease.Stats(); l.Drained && !l.Superseded {
				answer.Drained++
			}
		})
	case "": // asks whether the agents are settled
		for _, a := range c.agents {
			if a.settled() {
				answer.Settled++
			}
		}
	default:
		return nil, fmt.Errorf("order %q", o.Do)
	}
	answer.Sent = c.sent.Load()
	return &answer, nil
}

// each calls do for the agents that an order addresses.
func (c *crewWork) each(o *order, do func(*agent)) {
	for i, a := range c.agents {
		if o.Every > 0 && (c.of.First+i)%o.Every == 0 || o.Every == 0 && (o.Nodes == nil || slices.Contains(o.Nodes, a.node)) {
			do(a)
		}
	}
}

// start starts all agents, each at a random moment.
func (c *crewWork) start(over time.Duration) error {
	at := make([]time.Duration, c.of.Count)
	for i := range at {
		at[i] = rand.N(max(over, 1))
	}
	slices.Sort(at)
	numbers, began := rand.Perm(c.of.Count), time.Now()
	c.agents = make([]*agent, c.of.Count)
	for k, i := range numbers {
		select {
		case <-time.After(time.Until(began.Add(at[k]))):
		case <-c.ctx.Done():
			return c.ctx.Err()
		}
		a, err := newAgent(c.config, &c.sent, nodeName(c.of.First+i), c.of.Namespace, c.of.Dir, slices.Clone(c.healthy), c.builtins)
		if err != nil {
			return err
		}
		c.agents[i] = a
		ctx, stop := context.WithCancel(c.ctx)
		a.stop = stop
		a.start(ctx)
	}
	return nil
}

// end stops all agents, one after the other within a time, and waits for them.
func (c *crewWork) end(over time.Duration) {
	for _, a := range c.agents {
		if over > 0 {
			<-time.After(over / time.Duration(len(c.agents)))
		}
		a.stop()
	}
	c.cancel()
	for _, a := range c.agents {
		a.running.Wait()
		_ = a.journal.Close()
	}
}

// crew is a process of agents, as the test controls it.
type crew struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

// newCrew starts a crew, which ends with tb.
func newCrew(tb testing.TB, of crewOf) *crew {
	tb.Helper()
	program, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	c := &crew{cmd: exec.Command(program)}                    //nolint:noctx // it ends with its input
	c.cmd.Env = append(os.Environ(), crewEnv+"=1", "GOGC=50") // many agents share the memory
	c.cmd.Stderr = os.Stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err1 := c.cmd.StdinPipe()
	out, err2 := c.cmd.StdoutPipe()
	if err := errors.Join(err1, err2, c.cmd.Start()); err != nil {
		tb.Fatal(err)
	}
	c.in, c.out = in, json.NewDecoder(bufio.NewReader(out))
	tb.Cleanup(func() {
		timer := time.AfterFunc(2*endFor, func() { _ = c.cmd.Process.Kill() })
		defer timer.Stop()
		_ = in.Close()
		if err := c.cmd.Wait(); err != nil {
			tb.Errorf("agents: %v", err)
		}
	})
	if err := json.NewEncoder(in).Encode(of); err != nil {
		tb.Fatal(err)
	}
	return c
}

// ask sends an order to all crews and returns their combined responses.
func ask(tb testing.TB, all []*crew, o order) *state {
	tb.Helper()
	sum, answers, errs := &state{Events: map[string]int{}}, make([]state, len(all)), make([]error, len(all))
	var wg sync.WaitGroup
	for i, c := range all {
		wg.Go(func() {
			errs[i] = errors.Join(json.NewEncoder(c.in).Encode(o), c.out.Decode(&answers[i]))
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		tb.Fatalf("agents, %s: %v", o.Do, err)
	}
	for i := range answers {
		sum.add(&answers[i])
	}
	return sum
}

// add adds the response of another crew.
func (s *state) add(o *state) {
	s.Settled, s.Sent, s.Drained = s.Settled+o.Settled, s.Sent+o.Sent, s.Drained+o.Drained
	s.Mistakes = append(s.Mistakes, o.Mistakes...)
	for what, n := range o.Events {
		s.Events[what] += n
	}
	s.Requests.add(o.Requests)
}
