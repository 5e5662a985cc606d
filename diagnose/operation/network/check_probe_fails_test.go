package network

import (
	"net"
	"net/http"
	"testing"

	"github.com/kernosis/kernosis/vmtest/netlab"
)

func TestCheckProbeFails(t *testing.T) {
	node, pod := netlab.PairIn(t, 34)
	check := CheckProbeFails(labHost(t, node, pod))
	at := map[string]string{"address": "10.97.34.2", "port": "80", "protocol": "http", "timeout": "2s"}
	confirm(t, check, at, "ConnectionRefused", "http probe of 10.97.34.2:80: failed at TCP handshake")
	pod.Serve("10.97.34.2:81", func(c net.Conn) {
		_, _ = c.Read(make([]byte, 1))
		_ = c.(*net.TCPConn).SetLinger(0) // so that close sends a reset
	})
	at["port"] = "81"
	confirm(t, check, at, "ConnectionReset", "reset")
	pod.Listen("10.97.34.2:82", 0)
	pod.Dial("10.97.34.2:82") // takes the only slot of the queue
	at["port"], at["timeout"] = "82", "300ms"
	confirm(t, check, at, "SYNUnanswered", "10.97.34.2:82")
	status := http.StatusServiceUnavailable
	httpProbe(t, pod, "10.97.34.2:83", false, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
	at["port"], at["timeout"] = "83", "5s"
	out := confirm(t, check, at, "BadStatus", "503")
	wantResults(t, out, map[string]string{"status": "503", "phase": "answer"})
	status = http.StatusOK
	refute(t, check, at, "ProbeSucceeds", "200 OK")
}
