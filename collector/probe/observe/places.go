package observe

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/kernosis/kernosis/collector/probe"
)

const (
	// slowShare of the shortest timeout is when an answer counts as too late: kubelet's
	// clock begins before the connection's, and ends before it closes it.
	slowShare = 0.98
	// goneFor is how long after its removal a place's events may still come.
	goneFor = 5 * time.Second
)

// place is an address and port that probes go to.
type place struct {
	at     netip.AddrPort
	name   string
	probes []*course
}

// course is what is known of one probe.
type course struct {
	key       probe.Key
	pod       *probe.Pod
	container *probe.Container
	spec      *probe.Spec
	at        netip.AddrPort // invalid: no place, or none that can be watched

	started   time.Time // of the latest connection that was taken for its
	ended     time.Time
	failing   bool   // the latest outcome was a failure
	succeeded uint64 // of its place, as of the latest failure
	run       int    // failures in a row that were taken
	kept      *kept  // of the latest of them, as long as the run goes on
	draft     *kept  // of the outcome that is being handed on

	// The container before the present one, how many failures in a row it had, and when it
	// was known to be another.
	was     string
	wasRun  int
	changed time.Time

	// Of kubelet's counts: the first that were read, the latest, and how many failures
	// since the first were handed on.
	known       bool
	first, last Results
	accounted   uint64
	missing     time.Time // since when kubelet counts more; zero: it does not
	due         uint64    // what it counted then
	from        time.Time // when kubelet did not count more yet
	owners      [2]string // whose these failures are, and whose else
	doubt       *held     // the latest failure that kubelet had not counted when it was asked
	// succeededNow: kubelet's counts, that are being looked at, have a new success.
	succeededNow bool
}

// excess is how many failures kubelet has counted that were not handed on.
func (c *course) excess() uint64 {
	counted := c.last.Failed - c.first.Failed
	return counted - min(counted, c.accounted)
}

// endpoint returns where a probe's connections go. It reports false for names that only
// kubelet's resolver knows.
func endpoint(p *probe.Pod, s *probe.Spec) (netip.AddrPort, bool) {
	if s.Handler == probe.Exec || s.Port == 0 {
		return netip.AddrPort{}, false
	}
	var addr netip.Addr
	switch {
	case s.Host == "localhost":
		addr = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	case s.Host != "":
		var err error
		if addr, err = netip.ParseAddr(s.Host); err != nil {
			return netip.AddrPort{}, false
		}
	case len(p.Addresses) > 0:
		addr = p.Addresses[0]
	default:
		return netip.AddrPort{}, false // it has none yet
	}
	return netip.AddrPortFrom(addr.Unmap().WithZone(""), s.Port), true
}

// index is where which probe goes.
type index struct {
	places    map[netip.AddrPort]*place
	courses   map[probe.Key]*course
	unwatched int
}

// newIndex makes the index of pods, going on with what was known of their probes.
func newIndex(pods []*probe.Pod, before map[probe.Key]*course) *index {
	x := &index{places: map[netip.AddrPort]*place{}, courses: map[probe.Key]*course{}}
	// In an order that does not change, so that names of places don't.
	pods = slices.SortedFunc(slices.Values(pods), func(a, b *probe.Pod) int { return cmp.Compare(a.UID, b.UID) })
	for _, p := range pods {
		if p.Terminated || p.Active {
			continue
		}
		for i := range p.Containers {
			c := &p.Containers[i]
			for _, kind := range probe.Kinds() {
				if s := c.Probe(kind); s != nil {
					x.add(p, c, kind, s, before)
				}
			}
		}
	}
	return x
}

func (x *index) add(p *probe.Pod, c *probe.Container, kind probe.Kind, s *probe.Spec, before map[probe.Key]*course) {
	key := probe.Key{PodUID: p.UID, Container: c.Name, Kind: kind}
	one := before[key]
	if one == nil || one.spec.Handler != s.Handler || one.spec.Period != s.Period {
		one = &course{key: key}
	}
	if one.container != nil && one.container.ID != c.ID {
		if one.container.ID != "" {
			one.was, one.wasRun, one.changed = one.container.ID, one.run, time.Now()
		}
		one.failing, one.run, one.kept = false, 0, nil // kubelet counts anew
	}
	one.pod, one.container, one.spec, one.at = p, c, s, netip.AddrPort{}
	x.courses[key] = one
	at, ok := endpoint(p, s)
	if !ok {
		if s.Handler != probe.Exec {
			x.unwatched++
		}
		return
	}
	one.at = at
	pl := x.places[at]
	if pl == nil {
		pl = &place{at: at, name: p.Namespace + "/" + p.Name + portText(at)}
		x.places[at] = pl
	}
	pl.probes = append(pl.probes, one)
}

// targets are the places as they are to be watched from kubelet's namespaces.
func (x *index) targets(netns []uint32) []Target {
	var out []Target
	for _, at := range slices.SortedFunc(maps.Keys(x.places), netip.AddrPort.Compare) {
		p := x.places[at]
		shortest := p.probes[0].spec.Timeout
		for _, c := range p.probes {
			// A TCP probe waits for no answer.
			if c.spec.Handler != probe.TCP {
				shortest = min(shortest, c.spec.Timeout)
			}
		}
		t := Target{Name: p.name, Address: at.Addr(), Port: at.Port(), SlowAfter: time.Duration(float64(shortest) * slowShare)}
		if slices.IndexFunc(p.probes, func(c *course) bool { return c.spec.Handler != probe.TCP }) < 0 {
			t.SlowAfter = 0
		}
		for _, t.NetNS = range netns {
			out = append(out, t)
		}
	}
	return out
}
