package probe

import "time"

// step is what a worker does next.
type step int

const (
	stepWait  step = iota // no probe now
	stepProbe             // make one, or count one that was observed
	stepEnd               // no more probes
)

// course is the state of one worker's probes. It follows kubelet's rules, and has no clock and no
// side effects. Both feeds use it.
type course struct {
	kind Kind
	spec *Spec
	// own: the worker makes the probes itself, so it knows all of them.
	own bool

	id     string // container whose probes are counted
	last   Result // of the latest probe
	run    int    // number of latest probes in a row with that result
	held   int    // the run that caused onHold
	onHold bool   // no probes until the container has a new ID
	early  bool   // the container was seen before its probes began
	whole  bool   // the run was observed from its beginning
}

// sight is what a worker knows of its container at a point in time.
type sight struct {
	pod       *Pod
	container *Container // nil: the pod has no container of this name
	started   bool
	now       time.Time
}

// effects is what look changes in the results, in this order.
type effects struct {
	forget string   // container ID whose result is removed; empty: none
	set    []Result // for the present container ID
}

func (e *effects) add(r Result) { e.set = append(e.set, r) }

// look decides by the state of pod and container whether a probe is due.
func (c *course) look(at *sight) (step, effects) {
	var e effects
	if at.pod.Terminated {
		return stepEnd, e
	}
	if at.container == nil || at.container.ID == "" {
		c.early = true
		return stepWait, e // until more is known
	}
	if c.id != at.container.ID {
		e.forget = c.id
		c.begin(at.container)
		e.add(c.first(at.container))
	} else if c.kind == Startup && at.container.Started && at.container.State == Running {
		// kubelet had a success that was not observed here.
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
	// Readiness continues, so that traffic ends while the container still answers.
	if at.pod.Deleting && c.kind != Readiness {
		e.add(Success) // so that the container is not restarted
		return stepEnd, e
	}
	if at.now.Sub(at.container.StartedAt) < c.spec.InitialDelay {
		return stepWait, e
	}
	// The startup probe ends when the container has started; the others begin then.
	started := at.started || c.kind == Startup && at.container.Started
	if started == (c.kind == Startup) {
		return stepWait, e
	}
	return stepProbe, e
}

// begin switches to a container with a new ID. The run of equal results continues, as in kubelet:
// a restart for another reason does not end it. If the beginning of the run was not observed, its
// length is unknown. The restart then most likely means that kubelet's run has reached its
// threshold, so the run is reset.
func (c *course) begin(to *Container) {
	if c.id != "" {
		c.early = true
		if !c.own && !c.whole && c.last == Failure {
			c.last, c.run = Unknown, 0
		}
	}
	c.id, c.onHold, c.held = to.ID, false, 0
}

// first returns the result that a container starts with: what kubelet has found already, or the
// initial result.
func (c *course) first(of *Container) Result {
	if c.kind == Startup && of.Started || c.kind == Readiness && of.Ready {
		return Success
	}
	return c.kind.initial()
}

// take counts the result of a probe that was due. It returns how many results in a row are equal,
// and whether that reaches the threshold, which makes it the container's result.
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
	// kubelet restarts the container, or the container has started: no more probes until there is
	// a new container.
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
