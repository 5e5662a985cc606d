package observe

import (
	"slices"
	"strings"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/probe"
)

const (
	// maxSaid bounds what is kept of kubelet's message, maxCause the part quoted in a cause.
	maxSaid  = 512
	maxCause = 160
)

// Message is kubelet's message about one probe, parsed.
type Message struct {
	// Errored: the probe could not be made, after three tries; kubelet does not count it
	// as a failure.
	Errored bool
	Verdict string // an event.Verdict constant; event.VerdictOther for an unknown message
	Cause   string // the verdict in words, without figures that kubelet does not report
	Phase   string // connect, tls, established, answer; empty: unknown
	Errno   string
	Status  string // "503", "NOT_SERVING"
	Said    string // the text after kubelet's own introduction
}

// ReadMessage parses the text of an Unhealthy Event about a probe with this handler. It returns
// false for a text that is not about a probe.
func ReadMessage(handler probe.Handler, text string) (Message, bool) {
	m := Message{Verdict: event.VerdictOther}
	rest, ok := m.introduction(text)
	if !ok {
		return Message{}, false
	}
	m.Said = display.Safe(strings.TrimSpace(rest), maxSaid)
	switch handler {
	case probe.Exec:
		m.exec(rest)
	case probe.GRPC:
		m.grpc(rest)
	default:
		m.network(rest)
	}
	return m, true
}

// introduction parses "Liveness probe failed: " and the like.
func (m *Message) introduction(text string) (rest string, ok bool) {
	word, rest, ok := strings.Cut(text, " probe ")
	if !ok || !slices.Contains([]string{"Liveness", "Readiness", "Startup"}, word) {
		return "", false
	}
	// An empty output leaves "failed: ", which a store may have trimmed.
	if after, ok := strings.CutPrefix(rest, "failed:"); ok {
		return strings.TrimPrefix(after, " "), true
	}
	if after, ok := strings.CutPrefix(rest, "errored"); ok {
		m.Errored = true
		// "errored: …", from 1.31 on "errored and resulted in unknown state: …".
		_, after, _ = strings.Cut(after, ": ")
		return after, true
	}
	return "", false
}

func (m *Message) exec(rest string) {
	switch {
	case strings.HasPrefix(rest, "command timed out"), // 1.31 and later
		strings.HasPrefix(rest, `command "`) && strings.HasSuffix(rest, " timed out"):
		m.set(event.VerdictExecSlow, "answer", "the program did not end in time")
	case m.Errored:
		m.set(event.VerdictExecFailed, "", "the program could not be run: "+display.Safe(lastOf(rest), maxCause))
		switch {
		case strings.Contains(rest, "no such file or directory"), strings.Contains(rest, "executable file not found"):
			m.Status = "not found"
		case strings.Contains(rest, "permission denied"):
			m.Status = "permission denied"
		}
	default:
		m.set(event.VerdictExecFailed, "answer", "the program failed")
		if said := strings.TrimSpace(rest); said != "" {
			m.Cause += ": " + display.Safe(lineOf(said), maxCause)
		}
	}
}

func (m *Message) grpc(rest string) {
	switch {
	case strings.HasPrefix(rest, "service unhealthy (responded with "):
		m.Status = between(rest, `responded with "`, `"`)
		m.set(event.VerdictStatus, "answer", "gRPC health is "+display.Safe(m.Status, 64))
	case strings.HasPrefix(rest, "error: this server does not implement the grpc health protocol"):
		m.Status = "UNIMPLEMENTED"
		m.set(event.VerdictStatus, "answer", "the server has no gRPC health service")
	case strings.HasPrefix(rest, "timeout: health rpc did not complete within "):
		m.set(event.VerdictSilent, "answer", "no answer to the gRPC health request in time")
	case strings.HasPrefix(rest, "timeout: failed to connect service "):
		// A connection to a server that does not speak HTTP/2 ends like this too.
		m.set(event.VerdictTimeout, "", "no gRPC connection in time")
	case strings.HasPrefix(rest, "error: health rpc probe failed: "):
		m.Status = between(rest, "code = ", " ")
		m.set(event.VerdictStatus, "answer", "gRPC health request failed: "+display.Safe(lastOf(rest), maxCause))
		if m.connection(rest); m.Errno != "" {
			m.Status = ""
		}
	default:
		m.network(rest)
	}
	m.Status = display.Safe(m.Status, 64)
}

// network parses the error of an HTTP or TCP probe.
func (m *Message) network(rest string) {
	code, isStatus := strings.CutPrefix(rest, "HTTP probe failed with statuscode: ")
	switch {
	case isStatus:
		m.Status = code[:digits(code)]
		m.set(event.VerdictStatus, "answer", "HTTP status "+m.Status)
	case strings.Contains(rest, "server gave HTTP response to HTTPS client"):
		m.set(event.VerdictTLS, "tls", "the port speaks plain HTTP, and the probe HTTPS")
	case strings.Contains(rest, "malformed HTTP response \"\\x15\\x03"), strings.Contains(rest, "malformed HTTP response \"\\x16\\x03"):
		m.set(event.VerdictTLS, "tls", "the port speaks TLS, and the probe plain HTTP")
	case strings.Contains(rest, "TLS handshake timeout"):
		m.set(event.VerdictTLS, "tls", "the TLS handshake did not end in time")
	case strings.Contains(rest, "tls: "), strings.Contains(rest, "x509: "):
		m.set(event.VerdictTLS, "tls", "TLS: "+display.Safe(lastOf(rest), maxCause))
	case m.connection(rest):
	case strings.Contains(rest, "malformed HTTP "), strings.Contains(rest, "stopped after 10 redirects"):
		m.set(event.VerdictStatus, "answer", display.Safe(lastOf(rest), maxCause))
	}
}

func (m *Message) set(verdict, phase, cause string) {
	m.Verdict, m.Phase, m.Cause = verdict, phase, cause
}

// connection parses errors of a connection; sockets report those in more detail.
func (m *Message) connection(rest string) bool {
	set := func(verdict, phase, errno, cause string) bool {
		m.set(verdict, phase, cause)
		m.Errno = errno
		return true
	}
	has := func(s string) bool { return strings.Contains(rest, s) }
	switch {
	case has("connection refused"):
		return set(event.VerdictRefused, "connect", "ECONNREFUSED", "connection refused")
	case has("connection reset by peer"):
		return set(event.VerdictReset, "established", "ECONNRESET", "the connection was reset")
	case has("broken pipe"):
		return set(event.VerdictReset, "established", "EPIPE", "the connection was reset")
	case has("cannot assign requested address"):
		return set(event.VerdictPortsExhausted, "connect", "EADDRNOTAVAIL", "no free local port")
	case has("no route to host"):
		return set(event.VerdictNoRoute, "connect", "EHOSTUNREACH", "no route to host")
	case has("network is unreachable"):
		return set(event.VerdictNoRoute, "connect", "ENETUNREACH", "network is unreachable")
	case has("no such host"):
		return set(event.VerdictOther, "connect", "", "the probe's host has no address")
	case has("too many open files"):
		return set(event.VerdictProberLate, "connect", "EMFILE", "kubelet has too many open files")
	case has("awaiting headers") && has("dial tcp"), has("waiting for connection"), has("i/o timeout") && has("dial tcp"):
		return set(event.VerdictTimeout, "connect", "", "no connection in time")
	case has("while reading body"):
		return set(event.VerdictSlow, "answer", "", "the answer was not complete in time")
	case has("awaiting headers"), has("context deadline exceeded"), has("i/o timeout"):
		// kubelet reports the same if no connection was established.
		return set(event.VerdictSilent, "", "", "no answer in time")
	case strings.HasSuffix(rest, "EOF"):
		return set(event.VerdictReset, "answer", "", "the connection was closed without an answer")
	}
	return false
}

// lastOf returns the last part of a layered error, which has the reason.
func lastOf(s string) string {
	s = lineOf(strings.TrimSpace(s))
	for _, mark := range []string{" desc = ", "container process: ", "remote error: "} {
		if i := strings.LastIndex(s, mark); i >= 0 && i+len(mark) < len(s) {
			s = s[i+len(mark):]
		}
	}
	return s
}

func lineOf(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return strings.TrimRight(line, "\r ")
}

func between(s, from, to string) string {
	_, s, ok := strings.Cut(s, from)
	if !ok {
		return ""
	}
	s, _, _ = strings.Cut(s, to)
	return s
}

// digits returns the number of digits at the beginning of s, at most three.
func digits(s string) int {
	n := 0
	for n < len(s) && n < 3 && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}
