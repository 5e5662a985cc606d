package probe

import "time"

// step is what a worker does next.
type step int

const (
	stepWait  step = iota // no probe now
	stepProbe             // make one, or take what was seen of one
	stepEnd               // there will be none any more
)

// course is how the probes of one worker have gone so far: the rules of kubelet, without
// a clock and without effects. Both feeds have the same.
type course struct {
	kind Kind
	spec *Spec
	// own: the worker makes the probes, so that it knows of all.
	own bool

	id     string // container whose probes are counted
	last   Result // of the latest probe
	run    int    // how many in a row had it
	held   int    // the run that led to onHold
	onHold bool   // until the container has a new ID
	early  bool   // the container was seen before its probes began
	whole  bool   // the run was seen from its beginning
}

// sight is what a worker knows of its container at one time.
type sight struct {
	pod       *Pod
	container *Container // nil: the pod has none of the name
	started   bool
	now       time.Time
}

// effects is what a look changes in the results, in this order.
type effects struct {
	forget string    // container ID whose result goes; empty: none
	set    [2]Result // for the present container ID
	n      int       // how many of set there are
}

func (e *effects) add(r Result) {
	e.set[e.n] = r
	e.n++
}

// look says whether a probe is due, as far as pod and container decide it.
func (c *course) look(at *sight) (step, effects) {
	var e effects
	if at.pod.Terminated {
		return stepEnd, e
	}
	if at.container == nil || at.container.ID == "" {
		c.early = true
		return stepWait, e // for more to be known
	}
	if c.id != at.container.ID {
		e.forget = c.id
		c.begin(at.container)
		e.add(c.first(at.container))
	} else if c.kind == Startup && at.container.Started && at.container.State == Running {
		// kubelet has seen a success that nobody saw here.
		e.add(Success)
	}
	if c.onHold {
		return stepWait, e
	}
	if at.container.State != Running {
		e.add(Failure)
		if at.container.State == Ended && (at.container.Final || at.pod.RestartNever && !at.container.Sidecar) {
			return stepEnd, e
		}
		return stepWait, e
	}
	// Readiness goes on: traffic is to end while the container still answers.
	if at.pod.Deleting && c.kind != Readiness {
		e.add(Success) // so that nobody restarts it
		return stepEnd, e
	}
	if at.now.Sub(at.container.StartedAt) < c.spec.InitialDelay {
		return stepWait, e
	}
	// Startup is over with the container's start, the others begin with it.
	started := at.started || c.kind == Startup && at.container.Started
	if started == (c.kind == Startup) {
		return stepWait, e
	}
	return stepProbe, e
}

// begin turns to a container with a new ID. The run goes on, as kubelet's does: it is a
// restart for another reason that finds one. Of a run whose beginning was not seen, the
// length is not known, and the likely reason of the restart is that kubelet's is over.
func (c *course) begin(to *Container) {
	if c.id != "" {
		c.early = true
		if !c.own && !c.whole && c.last == Failure {
			c.last, c.run = Unknown, 0
		}
	}
	c.id, c.onHold, c.held = to.ID, false, 0
}

// first is the result that a container begins with: what kubelet has found already, else
// the initial one.
func (c *course) first(of *Container) Result {
	if c.kind == Startup && of.Started || c.kind == Readiness && of.Ready {
		return Success
	}
	return c.kind.initial()
}

// take counts the result of a probe that was due. It returns how many in a row have had
// it, and whether that reaches the threshold, so that it is the container's result.
func (c *course) take(r Result) (run int, reached bool) {
	if c.last == r {
		c.run++
	} else {
		c.whole = c.own || c.early || c.last != Unknown
		c.last, c.run = r, 1
	}
	run = c.run
	if r == Failure && run < c.spec.FailureThreshold || r == Success && run < c.spec.SuccessThreshold {
		return run, false
	}
	// kubelet restarts the container, or it has started: nothing is probed until there
	// is a new one.
	if c.kind == Liveness && r == Failure || c.kind == Startup {
		c.onHold, c.held, c.run, c.whole = true, run, 0, true
	}
	return run, true
}

// inARow returns how many of the latest probes failed, or succeeded, in a row.
func (c *course) inARow() (failures, successes int) {
	run := c.run
	if c.onHold {
		run = c.held
	}
	switch c.last {
	case Failure:
		return run, 0
	case Success:
		return 0, run
	}
	return 0, 0
}
