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
	// slowShare is the share of the shortest timeout after which an answer is too late: kubelet's
	// timeout starts before the connection's clock, and expires before kubelet closes the
	// connection. TCP probes don't count: they wait for no answer.
	slowShare = 0.98
	// goneFor is how long after a place's removal its events may still arrive.
	goneFor = 5 * time.Second
)

// place is an address and port that probes go to.
type place struct {
	name   string
	probes []*course
}

// course is the state of one probe.
type course struct {
	key       probe.Key
	pod       *probe.Pod
	container *probe.Container
	spec      *probe.Spec
	at        netip.AddrPort // invalid: no address, or none that can be watched

	started   time.Time // of the latest connection attributed to the probe
	ended     time.Time
	failing   bool   // the latest outcome was a failure
	succeeded uint64 // successful connections to its place, as of the latest failure
	run       int    // failures in a row that a worker took
	kept      *kept  // from the latest of them, while the run goes on
	draft     *kept  // from the outcome that is being reported

	// The previous container, how many failures in a row it had, and when its replacement was
	// detected.
	was     string
	wasRun  int
	changed time.Time

	// From kubelet's counts: the first ones read, the latest ones, and how many failures have
	// been reported since the first ones.
	known       bool
	first, last Results
	accounted   uint64
	missing     time.Time // since when kubelet has counted more; zero: it has not
	due         uint64    // failures it had counted then
	from        time.Time // the latest time at which kubelet had not counted more
	owners      [2]string // container that these failures belong to, and the alternative
	doubt       *held     // the latest failure that kubelet had not counted when polled
	// succeededNow: the counts being compared show a new success.
	succeededNow bool
}

// excess returns how many failures kubelet has counted that were not reported.
func (c *course) excess() uint64 {
	counted := c.last.Failed - c.first.Failed
	return counted - min(counted, c.accounted)
}

// endpoint returns the address and port that a probe connects to. It returns false for names that
// only kubelet's resolver can resolve.
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
		return netip.AddrPort{}, false // the pod has no address yet
	}
	return netip.AddrPortFrom(addr.Unmap().WithZone(""), s.Port), true
}

// index maps probes to the addresses and ports that they go to.
type index struct {
	places    map[netip.AddrPort]*place
	courses   map[probe.Key]*course
	unwatched int
}

// newIndex builds the index of pods. It keeps the state of probes that are in before.
func newIndex(pods []*probe.Pod, before map[probe.Key]*course) *index {
	x := &index{places: map[netip.AddrPort]*place{}, courses: map[probe.Key]*course{}}
	// Sort, so that the names of places are stable.
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
		one.recovered() // kubelet starts counting again
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
		pl = &place{name: p.Namespace + "/" + p.Name + portText(at)}
		x.places[at] = pl
	}
	pl.probes = append(pl.probes, one)
}

// targets returns the places as targets to be watched from kubelet's network namespaces.
func (x *index) targets(netns []uint32) []Target {
	var out []Target
	for _, at := range slices.SortedFunc(maps.Keys(x.places), netip.AddrPort.Compare) {
		p := x.places[at]
		t := Target{Name: p.name, Address: at.Addr(), Port: at.Port()}
		for _, c := range p.probes {
			after := time.Duration(float64(c.spec.Timeout) * slowShare)
			if answers(c.spec.Handler) && (t.SlowAfter == 0 || after < t.SlowAfter) {
				t.SlowAfter = after
			}
		}
		for _, t.NetNS = range netns {
			out = append(out, t)
		}
	}
	return out
}
