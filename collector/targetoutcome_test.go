package collector

import (
	"errors"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/vmtest/netlab"
)

// If nothing can be watched, targets are still stored and checked.
func TestTargetsWithoutAKernel(t *testing.T) {
	blind := errors.New("no BTF")
	s := &Sources{env: &environment{targets: newTargets(), clock: hostfs.NewClock()}, kernelErr: blind}
	if err := s.SetTargets("probes", []Target{{Port: 80}}); err != nil {
		t.Fatal(err)
	}
	if err := s.SetTargets("probes", []Target{{}}); !errors.Is(err, errNoTarget) {
		t.Errorf("a target without anything: %v", err)
	}
	if n := s.env.targets.len(); n != 1 {
		t.Errorf("%d targets", n)
	}
	if got, err := s.Outcomes("probes"); !errors.Is(err, errNotCounted) || !errors.Is(err, blind) {
		t.Errorf("outcomes %v (%v)", got, err)
	}
}

// Several sources may have the same target: the shortest time counts, for the openers of all.
func TestTargetsSlowAfter(t *testing.T) {
	at := Target{Address: netip.MustParseAddr("10.0.0.1"), Port: 80}
	with := func(after time.Duration, openers string) Target {
		target := at
		target.SlowAfter, target.SlowOpeners = after, openers
		return target
	}
	for name, c := range map[string]struct {
		a, b    Target
		ms      uint32
		openers []string // of the target; nil: all
	}{
		"none":             {a: at, b: at},
		"one of two":       {a: at, b: with(time.Second, ""), ms: 1000},
		"the shorter":      {a: with(3*time.Second, "kubelet"), b: with(1500*time.Microsecond, "kubelet"), ms: 2, openers: []string{"kubelet"}},
		"both's openers":   {a: with(time.Second, "kubelet,k3s-agent"), b: with(time.Second, "curl,kubelet"), ms: 1000, openers: []string{"curl", "k3s-agent", "kubelet"}},
		"one for anybody":  {a: with(time.Second, "kubelet"), b: with(time.Second, ""), ms: 1000},
		"others' openers":  {a: at, b: with(time.Second, "kubelet"), ms: 1000, openers: []string{"kubelet"}},
		"up to the second": {a: with(999999*time.Microsecond, ""), b: at, ms: 1000},
	} {
		watched, _ := number(map[string][]Target{"a": {c.a}, "b": {c.b}, "c": {{Port: 1, SlowAfter: time.Second, SlowOpeners: "other"}}}, nil)
		got := watched.Keys[at.key()]
		var openers []string
		for i, name := range watched.Openers {
			if got.Openers>>i&1 != 0 {
				openers = append(openers, name)
			}
		}
		slices.Sort(openers)
		if got.SlowMS != c.ms || !slices.Equal(openers, c.openers) {
			t.Errorf("%s: after %d ms, of %v", name, got.SlowMS, openers)
		}
	}
}

func TestTargetsSlowRefused(t *testing.T) {
	targets := newTargets()
	for name, bad := range map[string]Target{
		"negative":             {Port: 1, SlowAfter: -1},
		"too long":             {Port: 1, SlowAfter: 25 * time.Hour},
		"openers, but no time": {Port: 1, SlowOpeners: "kubelet"},
		"an empty name":        {Port: 1, SlowAfter: 1, SlowOpeners: "kubelet,"},
		"a long name":          {Port: 1, SlowAfter: 1, SlowOpeners: "0123456789abcdef"},
		"too many names":       {Port: 1, SlowAfter: 1, SlowOpeners: "a,b,c,d,e,f,g,h,i"},
	} {
		if err := targets.Set("probes", []Target{bad}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	// Removed names make room.
	for _, names := range []string{"a,b,c,d,e,f,g,h", "i,j,k"} {
		if err := targets.Set("probes", []Target{{Port: 1, SlowAfter: 1, SlowOpeners: names}}); err != nil {
			t.Error(err)
		}
	}
	if err := targets.Set("others", []Target{{Port: 1, SlowAfter: 1, SlowOpeners: "a,b,c,d,e,f"}}); err == nil {
		t.Error("nine names of two sources: accepted")
	}
}

// Connections to a source's targets are counted, by the real kernel.
func TestOutcomes(t *testing.T) {
	prober, target := netlab.Pair(t)
	a := newSockAgent(t)
	env := a.s.env
	s := &Sources{env: env}
	alive := Target{Name: "alive", Address: netip.MustParseAddr("10.97.31.2"), Port: 80, NetNS: prober.Inode}
	dead := Target{Name: "dead", Address: netip.MustParseAddr("fd97:31::2"), Port: 80, NetNS: prober.Inode}
	if err := s.SetTargets("probes", []Target{alive, dead}); err != nil {
		t.Fatal(err)
	}
	outcomes := func() []TargetOutcome {
		t.Helper()
		got, err := s.Outcomes("probes")
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	// Not in force yet.
	if got := outcomes(); len(got) != 2 || got[0] != (TargetOutcome{Target: alive}) || got[1] != (TargetOutcome{Target: dead}) {
		t.Fatalf("at once: %+v", got)
	}
	a.poll()
	target.Serve("10.97.31.2:80", netlab.Echo)
	began := time.Now()
	for range 23 {
		if err := prober.Probe("10.97.31.2:80", time.Second, "x"); err != nil {
			t.Fatal(err)
		}
		if err := prober.Probe("[fd97:31::2]:80", time.Second, "x"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatal(err)
		}
	}
	got := outcomes()
	ok, failed := got[0], got[1]
	if ok.Succeeded != 23 || ok.Failed != 0 || ok.RTT <= 0 || ok.Took <= 0 || ok.Took > time.Minute {
		t.Errorf("alive: %+v", ok)
	}
	if failed.Succeeded != 0 || failed.Failed != 23 || failed.RTT != 0 {
		t.Errorf("dead: %+v", failed)
	}
	for _, o := range got {
		// Two clocks, one of them converted.
		if o.Started.Before(began.Add(-time.Second)) || o.Started.After(time.Now().Add(time.Second)) {
			t.Errorf("%s started %s, it is %s", o.Target.Name, o.Started, time.Now())
		}
	}
	if got, err := s.Outcomes("others"); len(got) != 0 || err != nil {
		t.Errorf("of a source that has none: %v (%v)", got, err)
	}
	if err := s.SetTargets("probes", nil); err != nil {
		t.Fatal(err)
	}
	a.poll()
	if got := outcomes(); len(got) != 0 {
		t.Errorf("after they went: %+v", got)
	}
	if err := s.SetTargets("probes", []Target{alive}); err != nil {
		t.Fatal(err)
	}
	a.poll()
	if got := outcomes(); len(got) != 1 || got[0].Succeeded != 0 {
		t.Errorf("set anew: %+v", got)
	}
	env.targets.count(func(uint32) (bpf.SockOutcome, bool, error) { return bpf.SockOutcome{}, false, syscall.EPERM })
	if _, err := s.Outcomes("probes"); !errors.Is(err, syscall.EPERM) {
		t.Errorf("what can't be read: %v", err)
	}
}
