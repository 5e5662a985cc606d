package observe

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/probe"
)

// The texts are kubelet's own, with the versions that use them.
func TestReadMessage(t *testing.T) {
	for _, c := range []struct {
		handler probe.Handler
		text    string
		want    Message // Said is checked separately
	}{
		{probe.HTTP, "Liveness probe failed: HTTP probe failed with statuscode: 503",
			Message{Verdict: event.VerdictStatus, Phase: "answer", Status: "503", Cause: "HTTP status 503"}},
		{probe.HTTP, `Readiness probe failed: Get "http://10.244.1.7:8080/healthz": context deadline exceeded (Client.Timeout exceeded while awaiting headers)`,
			Message{Verdict: event.VerdictSilent, Cause: "no answer in time"}},
		{probe.HTTP, `Readiness probe failed: Get "http://10.244.1.7:8080/healthz": net/http: request canceled while waiting for connection (Client.Timeout exceeded while awaiting headers)`,
			Message{Verdict: event.VerdictTimeout, Phase: "connect", Cause: "no connection in time"}},
		{probe.HTTP, `Startup probe failed: Get "http://10.244.1.7:8080/": dial tcp 10.244.1.7:8080: i/o timeout (Client.Timeout exceeded while awaiting headers)`,
			Message{Verdict: event.VerdictTimeout, Phase: "connect", Cause: "no connection in time"}},
		{probe.HTTP, `Startup probe failed: Get "http://10.244.1.7:8080/": dial tcp 10.244.1.7:8080: connect: connection refused`,
			Message{Verdict: event.VerdictRefused, Phase: "connect", Errno: "ECONNREFUSED", Cause: "connection refused"}},
		{probe.HTTP, `Liveness probe failed: Get "http://10.244.1.7:8080/": read tcp 10.244.1.1:41234->10.244.1.7:8080: read: connection reset by peer`,
			Message{Verdict: event.VerdictReset, Phase: "established", Errno: "ECONNRESET", Cause: "the connection was reset"}},
		{probe.HTTP, `Liveness probe failed: Get "http://10.244.1.7:8080/": EOF`,
			Message{Verdict: event.VerdictReset, Phase: "answer", Cause: "the connection was closed without an answer"}},
		{probe.HTTP, `Liveness probe failed: Get "http://10.244.1.7:8080/": dial tcp 10.244.1.7:8080: connect: no route to host`,
			Message{Verdict: event.VerdictNoRoute, Phase: "connect", Errno: "EHOSTUNREACH", Cause: "no route to host"}},
		{probe.HTTP, `Liveness probe failed: Get "http://10.244.1.7:8443/": net/http: HTTP/1.x transport connection broken: malformed HTTP response "\x15\x03\x01\x00\x02\x02"`,
			Message{Verdict: event.VerdictTLS, Phase: "tls", Cause: "the port speaks TLS, and the probe plain HTTP"}},
		{probe.HTTP, `Liveness probe failed: Get "http://10.244.1.7:8080/": stopped after 10 redirects`,
			Message{Verdict: event.VerdictStatus, Phase: "answer", Cause: `Get "http://10.244.1.7:8080/": stopped after 10 redirects`}},
		{probe.HTTP, `Liveness probe errored and resulted in failure state: context deadline exceeded (Client.Timeout or context cancellation while reading body)`,
			Message{Errored: true, Verdict: event.VerdictSlow, Phase: "answer", Cause: "the answer was not complete in time"}},
		{probe.HTTP, `Liveness probe errored: strconv.Atoi: parsing "http": invalid syntax`,
			Message{Errored: true, Verdict: event.VerdictOther}},
		{probe.HTTPS, `Liveness probe failed: Get "https://10.244.1.7:8443/": http: server gave HTTP response to HTTPS client`,
			Message{Verdict: event.VerdictTLS, Phase: "tls", Cause: "the port speaks plain HTTP, and the probe HTTPS"}},
		{probe.HTTPS, `Liveness probe failed: Get "https://10.244.1.7:8443/": remote error: tls: handshake failure`,
			Message{Verdict: event.VerdictTLS, Phase: "tls", Cause: "TLS: tls: handshake failure"}},
		{probe.HTTPS, `Liveness probe failed: Get "https://10.244.1.7:8443/": net/http: TLS handshake timeout`,
			Message{Verdict: event.VerdictTLS, Phase: "tls", Cause: "the TLS handshake did not end in time"}},
		{probe.TCP, `Readiness probe failed: dial tcp 10.244.1.7:6379: connect: connection refused`,
			Message{Verdict: event.VerdictRefused, Phase: "connect", Errno: "ECONNREFUSED", Cause: "connection refused"}},
		{probe.TCP, `Readiness probe failed: dial tcp [fd00::7]:6379: i/o timeout`,
			Message{Verdict: event.VerdictTimeout, Phase: "connect", Cause: "no connection in time"}},
		{probe.TCP, `Readiness probe failed: dial tcp 10.244.1.7:6379: connect: cannot assign requested address`,
			Message{Verdict: event.VerdictPortsExhausted, Phase: "connect", Errno: "EADDRNOTAVAIL", Cause: "no free local port"}},
		{probe.TCP, `Readiness probe failed: dial tcp 10.244.1.7:6379: socket: too many open files`,
			Message{Verdict: event.VerdictProberLate, Phase: "connect", Errno: "EMFILE", Cause: "kubelet has too many open files"}},
		{probe.GRPC, `Liveness probe failed: service unhealthy (responded with "NOT_SERVING")`,
			Message{Verdict: event.VerdictStatus, Phase: "answer", Status: "NOT_SERVING", Cause: "gRPC health is NOT_SERVING"}},
		{probe.GRPC, `Liveness probe failed: error: this server does not implement the grpc health protocol (grpc.health.v1.Health): unknown service grpc.health.v1.Health`,
			Message{Verdict: event.VerdictStatus, Phase: "answer", Status: "UNIMPLEMENTED", Cause: "the server has no gRPC health service"}},
		{probe.GRPC, `Liveness probe failed: timeout: health rpc did not complete within 1s`,
			Message{Verdict: event.VerdictSilent, Phase: "answer", Cause: "no answer to the gRPC health request in time"}},
		{probe.GRPC, `Liveness probe failed: timeout: failed to connect service "10.244.1.7:50051" within 1s: context deadline exceeded`,
			Message{Verdict: event.VerdictTimeout, Cause: "no gRPC connection in time"}},
		{probe.GRPC, `Liveness probe failed: error: health rpc probe failed: rpc error: code = NotFound desc = unknown service`,
			Message{Verdict: event.VerdictStatus, Phase: "answer", Status: "NotFound", Cause: "gRPC health request failed: unknown service"}},
		{probe.GRPC, `Liveness probe failed: error: failed to connect service at "10.244.1.7:50051": connection error: desc = "transport: error while dialing: dial tcp 10.244.1.7:50051: connect: connection refused"`,
			Message{Verdict: event.VerdictRefused, Phase: "connect", Errno: "ECONNREFUSED", Cause: "connection refused"}},
		{probe.Exec, "Liveness probe failed: cat: can't open '/tmp/healthy': No such file or directory\nsecond line\n",
			Message{Verdict: event.VerdictExecFailed, Phase: "answer", Cause: "the program failed: cat: can't open '/tmp/healthy': No such file or directory"}},
		{probe.Exec, "Liveness probe failed: ", Message{Verdict: event.VerdictExecFailed, Phase: "answer", Cause: "the program failed"}},
		{probe.Exec, "Liveness probe failed:", Message{Verdict: event.VerdictExecFailed, Phase: "answer", Cause: "the program failed"}},
		{probe.Exec, `Liveness probe failed: command timed out: "sh -c sleep 60" timed out after 1s`,
			Message{Verdict: event.VerdictExecSlow, Phase: "answer", Cause: "the program did not end in time"}},
		{probe.Exec, `Readiness probe errored and resulted in unknown state: rpc error: code = Unknown desc = failed to exec in container: failed to start exec "a1": OCI runtime exec failed: exec failed: unable to start container process: exec: "/nope": stat /nope: no such file or directory: unknown`,
			Message{Errored: true, Verdict: event.VerdictExecFailed, Status: "not found", Cause: `the program could not be run: exec: "/nope": stat /nope: no such file or directory: unknown`}},
	} {
		m, ok := ReadMessage(c.handler, c.text)
		if !ok {
			t.Errorf("%s: not read", c.text)
			continue
		}
		if m.Said == "" && !strings.HasSuffix(strings.TrimSpace(c.text), "failed:") {
			t.Errorf("%s: kubelet's words are lost", c.text)
		}
		if m.Said = ""; m != c.want {
			t.Errorf("%s:\n got %+v\nwant %+v", c.text, m, c.want)
		}
	}
}

func TestParseWhatIsNone(t *testing.T) {
	for _, text := range []string{"", "Back-off restarting failed container", "Custom probe failed: x", "Liveness probe warning: x", "Liveness", "Liveness probe "} {
		if m, ok := ReadMessage(probe.HTTP, text); ok {
			t.Errorf("%q reads as %+v", text, m)
		}
	}
}

// FuzzReadMessage: no text causes a panic or lets terminal control characters through.
func FuzzReadMessage(f *testing.F) {
	for _, h := range []probe.Handler{probe.HTTP, probe.TCP, probe.GRPC, probe.Exec} {
		f.Add(string(h), "Liveness probe failed: HTTP probe failed with statuscode: 503")
		f.Add(string(h), "Readiness probe errored and resulted in unknown state: rpc error: code = \x1b[31m desc = \u202e")
		f.Add(string(h), `Startup probe failed: service unhealthy (responded with "`)
	}
	f.Fuzz(func(t *testing.T, handler, text string) {
		m, ok := ReadMessage(probe.Handler(handler), text)
		if !ok {
			return
		}
		if m.Verdict == "" {
			t.Errorf("%q: %+v", text, m)
		}
		for _, s := range []string{m.Cause, m.Said, m.Status, m.Errno, m.Phase} {
			if !utf8.ValidString(s) || strings.ContainsAny(s, "\x1b\x7f\r\n\u202e") || len(s) > 4*maxSaid+8 {
				t.Errorf("%q shows %q", text, s)
			}
		}
	})
}
