package event

import (
	"strings"

	"github.com/kernosis/kernosis/collector/display"
)

const (
	// SockFail: a connection to a probe target failed; the payload has the verdict.
	SockFail Kind = "sockfail"
	// SockFailRecovered: a connection to a target reported by SockFail succeeded.
	SockFailRecovered Kind = "sockfail.recovered"
)

// SockFailData is the payload of [SockFail] and [SockFailRecovered].
type SockFailData struct {
	Target      string   `json:"target"`          // the target's configured name, else address:port
	Verdict     string   `json:"verdict"`         // see the Verdict constants
	Phase       string   `json:"phase"`           // connect or established
	Errno       string   `json:"errno,omitempty"` // errno name seen by the socket
	Duration    Duration `json:"duration"`        // from connect to the failure
	RTT         Duration `json:"rtt,omitempty"`   // smoothed round trip; zero where it was never established
	Received    uint64   `json:"received,omitempty"`
	Retransmits uint32   `json:"retransmits"`
	Evidence    []string `json:"evidence,omitempty"` // facts behind the verdict, bounded
	Excluded    []string `json:"excluded,omitempty"` // causes ruled out, with why, bounded
	QueueLen    uint32   `json:"queueLen,omitempty"` // accept queue of the listener, where it was read
	QueueMax    uint32   `json:"queueMax,omitempty"`
}

// Verdicts of a failed connection.
const (
	VerdictRefused         = "refused"           // reset in answer to the SYN: nothing listens
	VerdictTimeout         = "syn-unanswered"    // blackhole: SYN sent, nothing came back
	VerdictAcceptQueueFull = "accept-queue-full" // the listener's accept queue overflowed
	VerdictReset           = "reset"             // reset after the connection was established
	VerdictSilent          = "connected-silent"  // accepted, request acknowledged, no byte back
	VerdictNotAccepted     = "not-accepted"      // connected, but still in the accept queue
	VerdictNoRoute         = "no-route"          // never sent: no route, blackhole or prohibit route
	VerdictPortsExhausted  = "ports-exhausted"   // never sent: no free local port
	VerdictUnreachable     = "icmp-unreachable"  // an ICMP error came back
	VerdictLocalDrop       = "local-drop"        // this node dropped the packet (firewall, policy)
	VerdictNeighborFailed  = "neighbor-failed"   // the next hop's link address does not resolve
)

func (d *SockFailData) facts(_ *Event, f *Facts) {
	f.Verdict = d.Verdict
	f.Evidence = append(f.Evidence, d.Evidence...)
	if d.QueueMax > 0 && !strings.Contains(strings.Join(d.Evidence, " "), "queue") {
		f.add("accept queue %d/%d", d.QueueLen, d.QueueMax)
	}
	if d.Errno != "" {
		f.add("%s after %s", d.Errno, display.Duration(d.Duration))
	}
	f.Excluded = append(f.Excluded, d.Excluded...)
}
