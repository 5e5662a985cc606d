package vmtest

import (
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/vmtest/netlab"
)

// routeFaults returns faults on the prober's outgoing side: no route, no neighbour.
func routeFaults() []sockFault {
	// Remove the obstacle; the target is then behind the gateway.
	heal := func(l *sockLab) {
		l.mend()
		l.prober.AddRouteVia(l.farNet, l.gateway)
		l.settle()
	}
	leadsNowhere := func(name string, kind netlab.Kind, errno, evidence string) sockFault {
		return sockFault{
			name: name, at: atFar, heal: heal,
			inject: func(l *sockLab) {
				l.prober.AddRoute(l.farNet, kind)
				l.mend = func() { l.prober.RemoveRoute(l.farNet, kind) }
			},
			want: always(sockWant{verdict: event.VerdictNoRoute, errno: []string{errno}, evidence: evidence}),
		}
	}
	appears := func(l *sockLab) {
		// A pending resolution may already have sent its last solicitation.
		l.prober.ForgetNeighbour(l.absent)
		l.settle()
	}
	// The SYN's retransmission, which reports the failure, and the end of the resolution, which
	// sets the socket's error, happen at the same time.
	unresolved := func(l *sockLab) sockWant {
		return sockWant{
			verdict: event.VerdictNeighborFailed, errno: []string{"", "EHOSTUNREACH"},
			evidence: "neighbor " + l.absent + ": (INCOMPLETE|FAILED)",
		}
	}
	return []sockFault{
		{
			name: "no-route", at: atFar, heal: heal,
			inject: func(l *sockLab) { l.mend = func() {} },
			want: always(sockWant{
				verdict: event.VerdictNoRoute, errno: []string{"ENETUNREACH"}, evidence: `route: none \(ENETUNREACH\)`,
			}),
		},
		leadsNowhere("blackhole-route", netlab.Blackhole, "EINVAL", `route: blackhole \(EINVAL\)`),
		leadsNowhere("prohibit-route", netlab.Prohibit, "EACCES", `route: prohibit \(EACCES\)`),
		leadsNowhere("unreachable-route", netlab.Unreachable, "EHOSTUNREACH", `route: unreachable \(EHOSTUNREACH\)`),
		{name: "dead-neighbour", at: atAbsent, timeout: 5 * time.Second, inject: func(*sockLab) {}, heal: appears, want: unresolved},
		// The probe times out before the kernel solicits the neighbour a second time.
		{name: "dead-neighbour-asked-once", at: atAbsent, timeout: 700 * time.Millisecond, inject: func(*sockLab) {}, heal: appears, want: unresolved},
		{
			name: "blackhole", at: atAbsent,
			inject: func(l *sockLab) { l.prober.AddGhost(l.absent) },
			heal:   appears,
			want: always(sockWant{
				verdict: event.VerdictTimeout, evidence: "no answer to the SYN",
				excluded: "via probe0, next hop .*\nneighbor .*: 02:00:00:00:de:ad, PERMANENT",
			}),
		},
	}
}

// icmpFaults returns faults that a router on the way reports.
func icmpFaults() []sockFault {
	router := func(name string, kind netlab.Kind, want func(l *sockLab) sockWant) sockFault {
		return sockFault{
			name: name, at: atFar, want: want,
			inject: func(l *sockLab) {
				l.prober.AddRouteVia(l.farNet, l.gateway)
				l.target.AddRoute(l.farNet, kind)
			},
			heal: func(l *sockLab) {
				l.target.RemoveRoute(l.farNet, kind)
				l.settle()
			},
		}
	}
	return []sockFault{
		router("icmp-unreachable", netlab.Unreachable, func(l *sockLab) sockWant {
			if l.v6 { // IPv6 has no "host unreachable" for this
				return unreachable("no route", "ENETUNREACH")
			}
			return unreachable("host unreachable", "EHOSTUNREACH")
		}),
		router("icmp-prohibited", netlab.Prohibit, func(l *sockLab) sockWant {
			if l.v6 {
				return unreachable("administratively prohibited", "EACCES")
			}
			return unreachable("administratively prohibited", "EHOSTUNREACH")
		}),
	}
}

// unreachable returns the expected event for an ICMP error. On one node the error may arrive while
// the socket is still sending: the socket then records it and keeps trying.
func unreachable(what, errno string) sockWant {
	return sockWant{
		verdict: event.VerdictUnreachable, errno: []string{"", errno},
		evidence: "ICMP " + what + " (came back|was sent on this node)|no reset, but an ICMP error: " + errno +
			"|the socket received " + errno + ", and kept trying",
		excluded: "via probe0",
	}
}

// firewallFaults returns faults caused by a policy on either side.
func firewallFaults() []sockFault {
	heal := func(l *sockLab) { l.mend(); l.accept() }
	// dropped expects the drop reason if the kernel reports it, otherwise what the drop looks like.
	dropped := func(reason, at string) func(l *sockLab) sockWant {
		return func(l *sockLab) sockWant {
			w := sockWant{verdict: event.VerdictTimeout, evidence: "no answer to the SYN", excluded: "listener present: queue 0/2\nroute: via probe0"}
			if l.gives(reason) {
				w.verdict, w.evidence = event.VerdictLocalDrop, "packet dropped on this node: "+reason+" at "+at
			}
			return w
		}
	}
	nft := func(name, hook, rule string, at func(l *sockLab) *netlab.Net, want func(l *sockLab) sockWant) sockFault {
		return sockFault{name: name, heal: heal, want: want, inject: func(l *sockLab) {
			l.listen(2)
			l.nft(at(l), hook, rule)
		}}
	}
	prober := func(l *sockLab) *netlab.Net { return l.prober }
	target := func(l *sockLab) *netlab.Net { return l.target }
	return []sockFault{
		nft("nft-drop-output", "output", "drop", prober, dropped("NETFILTER_DROP", "(nf_hook_slow|nft_do_chain)")),
		nft("nft-drop-input", "input", "drop", target, dropped("NETFILTER_DROP", "(nf_hook_slow|nft_do_chain)")),
		nft("nft-reject-reset", "input", "reject with tcp reset", target, func(l *sockLab) sockWant {
			w := sockWant{
				verdict: event.VerdictRefused, errno: []string{"ECONNREFUSED"},
				evidence: "a reset answered the SYN\nyet there is a listener: queue 0/2",
			}
			if l.gives("NETFILTER_DROP") {
				w.verdict = event.VerdictLocalDrop
				w.evidence = "a reset answered the SYN\npacket dropped on this node: NETFILTER_DROP"
				w.excluded = "listener present: queue 0/2"
			}
			return w
		}),
		nft("nft-reject-icmp", "input", "reject with icmpx port-unreachable", target, always(unreachable("port unreachable", "ECONNREFUSED"))),
		{
			name: "tc-drop", heal: heal,
			inject: func(l *sockLab) {
				needConfig(l.t, "CONFIG_NET_SCH_INGRESS")
				needConfig(l.t, "CONFIG_NET_CLS_BPF")
				l.listen(2)
				l.mend = l.target.DropTCP()
			},
			want: dropped("TC_INGRESS", "__netif_receive_skb_core"),
		},
		{
			name: "cgroup-policy", heal: heal,
			inject: func(l *sockLab) {
				l.listen(2)
				l.forbid()
			},
			want: always(sockWant{
				verdict: event.VerdictLocalDrop, evidence: "refused on this node, by a policy of the control group", excluded: "via probe0",
			}),
		},
	}
}
