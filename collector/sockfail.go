package collector

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
)

const (
	// pollTargets is how soon a changed set of targets is watched. If no hook detects that
	// connect() returned, a connect() without a route is reported after neverSentAfter plus
	// pollTargets.
	pollTargets = 250 * time.Millisecond
	// pollIdle is the interval while there are no targets.
	pollIdle = time.Second
	// maxUnwatched is how many attempts in a row to watch the targets may fail before the stem is blind.
	maxUnwatched = 4
	// neverSentAfter is how long a connect() may take from its start until the socket changes its
	// state: microseconds, unless its thread gets no CPU. A late report is better than blaming a
	// policy that does not exist.
	neverSentAfter = time.Second
	// firstLists is how long records from the time without an agent wait for the first list of each
	// source of targets. Pods are known within a second of the start, and the canary after the
	// records must not be late (canaryPatience).
	firstLists = 3 * time.Second
	// maxDestinations bounds the memory of destination names.
	maxDestinations = 1000
)

// sockfail decodes failed connections, maintains the targets in the kernel, and looks up facts that
// records lack.
type sockfail struct {
	env    *environment
	loaded *bpf.Loaded
	attribution
	names
	targets *Targets
	prober  *prober
	drops   dropReasons
	// destinations caches the text of addresses without a target name.
	destinations texts[netip.AddrPort]
	notLooked    uint64 // as last logged
	canary       sockCanary
	firstBy      time.Time // when records from the time without an agent stop waiting
	waited       bool      // they were left in the ring at the last check
	unwatched    error     // why the latest targets can't be watched
	failed       int       // attempts in a row to watch them

	// The event points to these; they are reused for the next event.
	opener   event.Task
	conn     event.Conn
	data     event.SockFailData
	facts    facts
	question question
	judgement
}

func newSockFail(env *environment, l *bpf.Loaded) *sockfail {
	return &sockfail{
		env: env, loaded: l, attribution: attribution{attributor: env.attributor},
		targets: env.targets, prober: newProber(env.fs), drops: readDropReasons(env.kernel),
	}
}

// openSockFail returns the stem's decoder. It continues to watch the targets of an earlier run.
func openSockFail(env *environment, l *bpf.Loaded) (*sockfail, error) {
	outcomes, err := l.SockOutcomes()
	if err != nil {
		return nil, err
	}
	env.outcomes = outcomes
	env.targets.count(outcomes.Of)
	watched, err := l.WatchedTargets()
	if err != nil {
		return nil, err
	}
	env.targets.resume(watched)
	s := newSockFail(env, l)
	s.firstBy = time.Now().Add(firstLists)
	return s, nil
}

// waits reports whether records stay in the ring, where they survive the agent's end, because the
// sources will soon say which targets they belong to.
func (s *sockfail) waits(now time.Time) bool {
	s.waited = now.Before(s.firstBy) && s.targets.waiting()
	return s.waited
}

func (s *sockfail) decode(h *bpf.Header, raw []byte, ev *event.Event) (bool, error) {
	r, err := bpf.View[bpf.SockFail](raw)
	if err != nil {
		return false, err
	}
	if r.Target == bpf.SockTargetCanary {
		ev.Kind = event.Canary
		ev.CanaryRun = &event.CanaryData{Stem: bpf.StemSockFail, Nonce: s.canary.received(r)}
		return true, nil
	}
	s.names.task(&s.opener, &r.Opener) // the thread, with the name of its process
	ev.Task = &s.opener
	s.subject(ev, &r.Memory, &r.Default)
	s.conn = event.Conn{
		Src: addrPort(r.SrcAddr, r.SrcPort), Dst: addrPort(r.DstAddr, r.DstPort), NetNS: r.NetNS,
	}
	ev.Conn = &s.conn
	target, _ := s.targets.byRecord(r.Target)
	s.data = event.SockFailData{
		Target:      s.targetName(target.Name),
		Phase:       "connect",
		Duration:    event.Duration(h.BootNS - min(r.StartNS, h.BootNS)),
		RTT:         event.Duration(time.Duration(r.RTTMicros) * time.Microsecond),
		Received:    r.BytesReceived,
		Retransmits: r.Retransmits,
	}
	if r.Flags&bpf.SockEstablished != 0 {
		s.data.Phase = "established"
	}
	ev.SockFail = &s.data
	switch h.Kind {
	case bpf.KindSockFailRecovered:
		ev.Kind = event.SockFailRecovered
		return true, nil
	case bpf.KindSockFail:
		ev.Kind = event.SockFail
	default:
		return false, fmt.Errorf("%w: kind %d in the ring of %s", bpf.ErrMalformed, h.Kind, bpf.StemSockFail)
	}
	s.fill(r)
	s.question = question{
		place: place{
			netns: r.NetNS, targetNetNS: target.TargetNetNS, dst: s.conn.Dst,
			notSent: s.facts.notSent, reset: s.facts.reset,
		},
		pid: r.Opener.PID, src: s.conn.Src, established: s.facts.established,
		started: s.env.clock.Wall(time.Duration(r.StartNS)),
	}
	s.facts.looked = s.prober.look(&s.question)
	s.judge(&s.facts)
	s.data.Verdict = s.verdict
	s.data.Evidence, s.data.Excluded = s.evidence, s.excluded
	if s.data.Errno = hostfs.ErrnoName(int32(r.Err)); r.Err == 0 && s.facts.noState {
		s.data.Errno = hostfs.ErrnoName(int32(s.facts.route.Errno))
	}
	if s.facts.listener.Present {
		s.data.QueueLen, s.data.QueueMax = s.facts.listener.Queue, s.facts.listener.Max
	}
	return true, nil
}

// fill sets the facts from a record.
func (s *sockfail) fill(r *bpf.SockFail) {
	s.facts = facts{
		dst:         s.conn.Dst,
		established: r.Flags&bpf.SockEstablished != 0,
		noState:     r.Flags&bpf.SockNoState != 0,
		notSent:     r.Flags&bpf.SockNotSent != 0,
		reset:       r.Flags&bpf.SockReset != 0,
		peerClosed:  r.Flags&bpf.SockPeerClosed != 0,
		errno:       unix.Errno(r.Err),
		errnoSoft:   unix.Errno(r.ErrSoft),
		duration:    time.Duration(s.data.Duration),
		unacked:     r.Unacked,
		received:    r.BytesReceived,
		rtt:         time.Duration(s.data.RTT),
	}
	if r.Flags&bpf.SockSlow != 0 {
		s.facts.slowAfter = time.Duration(r.LimitMS) * time.Millisecond
	}
	if r.BytesAcked > 1 {
		s.facts.acked = r.BytesAcked - 1 // the SYN
	}
	if r.Flags&bpf.SockDropped != 0 {
		s.facts.dropReason = s.drops.name(r.DropReason)
		if name, _, ok := s.env.symbols.Lookup(r.DropLocation); ok {
			s.facts.dropAt = name
		}
	}
	if r.Flags&bpf.SockICMP != 0 {
		s.facts.icmp = icmpText(r.ICMPOrigin, r.ICMPType, r.ICMPCode)
	}
}

func addrPort(addr [16]byte, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom16(addr).Unmap(), port)
}

// targetName returns the target's own name, or else its address.
func (s *sockfail) targetName(name string) string {
	if name != "" {
		return name
	}
	return s.destinations.of(s.conn.Dst, maxDestinations, s.conn.Dst.String)
}

// poll updates the kernel's targets, and finds the connects that never sent a packet.
func (s *sockfail) poll(ctx context.Context, now time.Time, _ func(*event.Event)) (time.Duration, error) {
	if s.waited {
		return pollTargets, nil // the targets must be known when the records are read
	}
	err := s.targets.reconcile(func(watched bpf.SockTargets) error {
		s.prober.renew()
		err := s.canary.open(ctx)
		s.canary.add(&watched)
		if s.unwatched = s.loaded.WatchTargets(watched); s.unwatched == nil {
			s.failed = 0
		} else {
			s.failed++
		}
		return errors.Join(err, s.unwatched)
	})
	if n := s.prober.over; n != s.notLooked {
		s.env.log.Warn("failed connections not analyzed: too many at once", "count", n-s.notLooked)
		s.notLooked = n
	}
	if s.targets.len() == 0 {
		return pollIdle, err
	}
	err = errors.Join(err, s.loaded.CheckFollowers(), s.loaded.SweepNeverSent(hostfs.BootTime()-neverSentAfter))
	s.prober.sample(now, s.targets.list)
	return pollTargets, err
}

// blind returns why connections to targets are not detected, if several attempts in a row have failed.
func (s *sockfail) blind() error {
	if s.failed < maxUnwatched {
		return nil
	}
	return s.unwatched
}

// dropReasons contains the running kernel's reasons for dropping a packet, by number: these vary.
type dropReasons struct {
	core    map[uint64]string
	subsys  map[uint64]string
	unknown texts[uint32]
}

func readDropReasons(k *bpf.Kernel) dropReasons {
	var d dropReasons
	if k == nil {
		return d
	}
	// Kernels before v5.17 have no drop reasons, and kernels before v6.4 no reasons of subsystems.
	d.core, _ = k.EnumNames("skb_drop_reason")
	d.subsys, _ = k.EnumNames("skb_drop_reason_subsys")
	for n, name := range d.core {
		d.core[n] = strings.TrimPrefix(name, "SKB_DROP_REASON_")
	}
	return d
}

// maxReasons bounds the memory of generated names.
const maxReasons = 256

func (d *dropReasons) name(reason uint32) string {
	if name, ok := d.core[uint64(reason)]; ok {
		return name
	}
	return d.unknown.of(reason, maxReasons, func() string {
		if sub, ok := d.subsys[uint64(reason>>16)]; ok && reason>>16 != 0 {
			return fmt.Sprintf("%s reason %d", strings.ToLower(strings.TrimPrefix(sub, "SKB_DROP_REASON_SUBSYS_")), reason&0xffff)
		}
		return fmt.Sprintf("reason %d", reason)
	})
}
