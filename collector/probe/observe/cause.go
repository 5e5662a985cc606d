package observe

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
)

// portText returns the port in the usual form, ":8080".
func portText(at netip.AddrPort) string { return ":" + strconv.Itoa(int(at.Port())) }

// causeOf describes the verdict of a connection in words, with its figures.
func causeOf(s *event.SockFailData, c *event.Conn, timeout time.Duration) string {
	port, took := portText(c.Dst), time.Duration(s.Duration)
	if timedOut(s.Verdict) && took > timeout-timeoutLess && took < timeout+timeoutMore {
		took = timeout // use the configured value, so that the text stays the same
	}
	switch s.Verdict {
	case event.VerdictRefused:
		return "RST: nothing listens on " + port + other(s.Evidence)
	case event.VerdictTimeout:
		if full := first(s.Evidence, "connection tracking is full", ""); full != "" {
			return full
		}
		if s.Retransmits == 0 {
			return "SYN unanswered for " + display.Duration(took)
		}
		return fmt.Sprintf("SYN unanswered for %s, sent %d times", display.Duration(took), s.Retransmits+1)
	case event.VerdictAcceptQueueFull:
		if s.QueueMax == 0 && s.QueueLen == 0 {
			return "accept queue full on " + port
		}
		return fmt.Sprintf("accept queue full %d/%d on %s", s.QueueLen, s.QueueMax, port)
	case event.VerdictNotAccepted:
		return fmt.Sprintf("connected, but not accepted in %s: it waits in the accept queue of %s", display.Duration(took), port)
	case event.VerdictSilent:
		return "SYN answered, request acked, no byte back in " + display.Duration(took)
	case event.VerdictSlow:
		return "the answer started, but was not complete in " + display.Duration(took)
	case event.VerdictReset:
		if s.Received > 0 {
			return "connection to " + port + " reset in the middle of the answer"
		}
		return "connection to " + port + " reset after it was established"
	case event.VerdictNoRoute:
		return "no route to " + c.Dst.Addr().String() + bracket(s.Errno)
	case event.VerdictNeighborFailed:
		return "the next hop to " + c.Dst.Addr().String() + " does not resolve"
	case event.VerdictUnreachable:
		return first(s.Evidence, "ICMP", "an ICMP error came back")
	case event.VerdictLocalDrop:
		return first(s.Evidence, "dropped", "this node dropped the packet")
	case event.VerdictPortsExhausted:
		return "no local port is free to connect to " + c.Dst.String()
	}
	return s.Verdict
}

func bracket(s string) string {
	if s == "" {
		return ""
	}
	return " (" + s + ")"
}

// first returns the first fact that contains word, or otherwise if there is none.
func first(evidence []string, word, otherwise string) string {
	for _, e := range evidence {
		if strings.Contains(e, word) {
			return e
		}
	}
	return otherwise
}

// other describes what listens instead, if that was checked.
func other(evidence []string) string {
	for _, e := range evidence {
		if strings.HasPrefix(e, "listens on ") {
			return " (container " + e + ")"
		}
	}
	return ""
}
