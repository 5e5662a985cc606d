package probe

import (
	"slices"
	"testing"
	"time"
)

var began = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func newCourse(k Kind) *course {
	return &course{kind: k, spec: &Spec{InitialDelay: 5 * time.Second, SuccessThreshold: 1, FailureThreshold: 3}}
}

func container(id string, change ...func(*Container)) *Container {
	c := &Container{Name: "web", ID: id, State: Running, StartedAt: began}
	for _, f := range change {
		f(c)
	}
	return c
}

// kubelet's rules, one sentence each.
func TestWhatKubeletDoes(t *testing.T) {
	waiting := func(c *Container) { c.State = Waiting }
	ended := func(c *Container) { c.State = Ended }
	final := func(c *Container) { c.State, c.Final = Ended, true }
	sidecar := func(c *Container) { c.State, c.Sidecar = Ended, true }
	kinds := func(k ...Kind) []Kind { return k }
	all := Kinds()
	for _, tc := range []struct {
		rule  string
		kinds []Kind
		pod   Pod
		c     *Container
		after time.Duration // since the container's start; 0: a minute
		step  step
		set   func(Kind) []Result // nil: only the initial result
	}{
		{rule: "a pod that has ended ends the worker", kinds: all, pod: Pod{Terminated: true}, c: container("a"), step: stepEnd, set: none},
		{rule: "without a container there is nothing to probe yet", kinds: all, step: stepWait, set: none},
		{rule: "without an ID there is nothing to probe yet", kinds: all, c: container(""), step: stepWait, set: none},
		{rule: "liveness is due, and begins with success", kinds: kinds(Liveness), c: container("a"), step: stepProbe, set: only(Success)},
		{rule: "readiness is due, and begins with failure", kinds: kinds(Readiness), c: container("a"), step: stepProbe, set: only(Failure)},
		{rule: "a container that waits has failed", kinds: all, c: container("a", waiting), step: stepWait, set: initialThen(Failure)},
		{rule: "a container that has ended has failed, and is restarted", kinds: all, c: container("a", ended), step: stepWait, set: initialThen(Failure)},
		{rule: "nothing is restarted in a pod that does not", kinds: all, pod: Pod{RestartNever: true}, c: container("a", ended), step: stepEnd, set: initialThen(Failure)},
		{rule: "but sidecars are", kinds: all, pod: Pod{RestartNever: true}, c: container("a", sidecar), step: stepWait, set: initialThen(Failure)},
		{rule: "a container may have ended for good by itself", kinds: all, c: container("a", final), step: stepEnd, set: initialThen(Failure)},
		{rule: "deletion ends liveness and startup with success", kinds: kinds(Liveness, Startup), pod: Pod{Deleting: true}, c: container("a"), step: stepEnd, set: initialThen(Success)},
		{rule: "readiness goes on while the pod is deleted", kinds: kinds(Readiness), pod: Pod{Deleting: true}, c: container("a"), step: stepProbe},
		{rule: "deletion waits for a container that does not run", kinds: all, pod: Pod{Deleting: true}, c: container("a", waiting), step: stepWait, set: initialThen(Failure)},
		{rule: "the delay counts from the container's start", kinds: kinds(Liveness, Readiness), c: container("a"), after: 5*time.Second - 1, step: stepWait},
		{rule: "and is over at its end", kinds: kinds(Liveness, Readiness), c: container("a"), after: 5 * time.Second, step: stepProbe},
	} {
		for _, k := range tc.kinds {
			at := sight{pod: &tc.pod, container: tc.c, started: k != Startup, now: began.Add(time.Minute)}
			if tc.after > 0 {
				at.now = began.Add(tc.after)
			}
			if tc.set == nil {
				tc.set = initialThen()
			}
			step, e := newCourse(k).look(&at)
			if want := tc.set(k); step != tc.step || !slices.Equal(e.set, want) || e.forget != "" {
				t.Errorf("%s: %s: step %d, results %v, want %d, %v", tc.rule, k, step, e.set, tc.step, want)
			}
		}
	}
}

func none(Kind) []Result { return nil }

func only(r Result) func(Kind) []Result { return func(Kind) []Result { return []Result{r} } }

func initialThen(more ...Result) func(Kind) []Result {
	return func(k Kind) []Result { return append([]Result{k.initial()}, more...) }
}

func TestStartupGatesTheOthers(t *testing.T) {
	for _, k := range Kinds() {
		for _, started := range []bool{false, true} {
			at := sight{pod: &Pod{}, container: container("a"), started: started, now: began.Add(time.Minute)}
			step, _ := newCourse(k).look(&at)
			if want := started != (k == Startup); (step == stepProbe) != want {
				t.Errorf("%s, started %v: step %d", k, started, step)
			}
		}
	}
}

// due lets c look at a container for which a probe is due.
func due(t *testing.T, c *course, id string) {
	t.Helper()
	at := sight{pod: &Pod{}, container: container(id), started: c.kind != Startup, now: began.Add(time.Minute)}
	if step, _ := c.look(&at); step != stepProbe {
		t.Fatalf("%s of %s: step %d", c.kind, id, step)
	}
}

func TestThresholds(t *testing.T) {
	c := newCourse(Readiness)
	c.spec = &Spec{SuccessThreshold: 2, FailureThreshold: 3}
	due(t, c, "a")
	type taken struct {
		run     int
		reached bool
	}
	for i, step := range []struct {
		result Result
		want   taken
	}{
		{Failure, taken{1, false}},
		{Failure, taken{2, false}},
		{Success, taken{1, false}}, // a success starts a new run, even below its threshold
		{Failure, taken{1, false}},
		{Failure, taken{2, false}},
		{Failure, taken{3, true}},
		{Failure, taken{4, true}}, // readiness goes on
		{Success, taken{1, false}},
		{Success, taken{2, true}},
		{Success, taken{3, true}},
	} {
		due(t, c, "a")
		run, reached := c.take(step.result)
		if have := (taken{run, reached}); have != step.want {
			t.Errorf("%d: %+v, want %+v", i, have, step.want)
		}
	}
}

func TestHoldUntilTheContainerIsAnother(t *testing.T) {
	for _, tc := range []struct {
		kind   Kind
		result Result
		times  int
	}{{Liveness, Failure, 3}, {Startup, Failure, 3}, {Startup, Success, 1}} {
		c := newCourse(tc.kind)
		for i := range tc.times {
			due(t, c, "a")
			if _, reached := c.take(tc.result); reached != (i == tc.times-1) {
				t.Errorf("%s: reached %v at %d", tc.kind, reached, i+1)
			}
		}
		at := sight{pod: &Pod{}, container: container("a"), started: tc.kind != Startup, now: began.Add(time.Hour)}
		if step, e := c.look(&at); step != stepWait || len(e.set) != 0 {
			t.Errorf("%s: step %d, %d results on hold", tc.kind, step, len(e.set))
		}
		if failures, successes := c.inARow(); failures+successes != tc.times {
			t.Errorf("%s: %d and %d in a row on hold", tc.kind, failures, successes)
		}
		at.container = container("b")
		step, e := c.look(&at)
		if step != stepProbe || e.forget != "a" || len(e.set) != 1 || e.set[0] != tc.kind.initial() {
			t.Errorf("%s: with a new ID: step %d, %+v", tc.kind, step, e)
		}
		if run, _ := c.take(tc.result); run != 1 {
			t.Errorf("%s: the new container begins with %d", tc.kind, run)
		}
	}
}

// If a container is restarted for another reason, the run goes on in the new one.
func TestTheRunOutlivesTheContainer(t *testing.T) {
	c := newCourse(Liveness)
	due(t, c, "a")
	c.take(Success)
	c.take(Failure)
	c.take(Failure)
	due(t, c, "b")
	if run, reached := c.take(Failure); run != 3 || !reached {
		t.Errorf("%d, reached %v, want 3", run, reached)
	}
}

// A run that began before the agent ends with the container: kubelet restarted the container at
// its threshold, however many failures were observed here.
func TestARunThatWasNotSeenWholeEndsWithTheContainer(t *testing.T) {
	seen, unseen, own := newCourse(Liveness), newCourse(Liveness), newCourse(Liveness)
	own.own = true
	seen.look(&sight{pod: &Pod{}, container: container(""), now: began})
	for c, want := range map[*course]int{seen: 3, unseen: 1, own: 3} {
		due(t, c, "a")
		c.take(Failure)
		c.take(Failure)
		due(t, c, "b")
		if run, _ := c.take(Failure); run != want {
			t.Errorf("%d, want %d", run, want)
		}
	}
	// From then on the run is known.
	due(t, unseen, "b")
	unseen.take(Failure)
	due(t, unseen, "c")
	if run, _ := unseen.take(Failure); run != 3 {
		t.Errorf("%d, want 3", run)
	}
}

// A restart of the agent does not lose what kubelet reports of this very container.
func TestAContainerBeginsWithWhatKubeletSays(t *testing.T) {
	ready := func(c *Container) { c.Ready, c.Started = true, true }
	for k, want := range map[Kind]Result{Startup: Success, Readiness: Success, Liveness: Success} {
		_, e := newCourse(k).look(&sight{pod: &Pod{}, container: container("a", ready), started: true, now: began})
		if len(e.set) != 1 || e.set[0] != want {
			t.Errorf("%s: %v", k, e.set)
		}
	}
	// A startup success that was not observed here.
	c := newCourse(Startup)
	due(t, c, "a")
	c.take(Failure)
	started := func(c *Container) { c.Started = true }
	step, e := c.look(&sight{pod: &Pod{}, container: container("a", started), started: false, now: began.Add(time.Minute)})
	if step != stepWait || len(e.set) != 1 || e.set[0] != Success {
		t.Errorf("startup: step %d, %v", step, e.set)
	}
}
