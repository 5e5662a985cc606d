package network

import (
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/vmtest/netlab"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

func TestCheckNoListener(t *testing.T) {
	_, target := netlab.PairIn(t, 33)
	at := map[string]string{"netns": inode(target), "address": "10.97.33.2", "port": "80"}
	check := CheckNoListener(host())

	confirm(t, check, at, "NoListener", `nothing listens at 10.97.33.2:80 in network namespace \d+ .*; other listeners: none$`)
	target.Listen("127.0.0.1:81", 3)
	target.Listen("127.0.0.1:80", 3)
	target.Listen("[fd97:33::2]:80", 3)
	out := confirm(t, check, at, "NoListener", `other listeners: (\[fd97:33::2\]|127.0.0.1):80 0/3 network.test\[\d+\], .*:80 .*, 127.0.0.1:81 0/3`)
	wantResults(t, out, map[string]string{"listeners": "127.0.0.1:80 0/3"})
	target.Listen("10.97.33.2:80", 3)
	refute(t, check, at, "ListenerPresent", `network.test\[\d+\] listens at 10.97.33.2:80, queue 0/3`)

	delete(at, "port")
	fail(t, check, at, "parameter port is required")
	fail(t, check, map[string]string{"netns": "77", "port": "80"}, "network namespace 77")
}

func TestCheckAcceptQueueFull(t *testing.T) {
	prober, target := netlab.PairIn(t, 33)
	at := map[string]string{"address": "10.97.33.2", "port": "80", "window": "300ms"}
	check := CheckAcceptQueueFull(host())

	refute(t, check, at, "AcceptQueueNotFull", "nothing listens at 10.97.33.2:80")
	l := target.Listen("10.97.33.2:80", 1)
	target.Listen("10.97.33.2:81", 1)
	refute(t, check, at, "AcceptQueueNotFull", `queue 0/1 on 10.97.33.2:80, owner network.test\[\d+\] at most, in \d+ samples in .*; 0 connections met`)
	prober.Dial("10.97.33.2:80")
	refute(t, check, at, "AcceptQueueNotFull", `queue 1/1 on`) // the kernel admits one more
	prober.Dial("10.97.33.2:80")
	stop := keepProbing(prober, "10.97.33.2:80")
	out := confirm(t, check, at, "AcceptQueueFull", `queue 2/1 on 10.97.33.2:80, owner network.test\[\d+\] \(full in (\d+) of \d+ samples`)
	stop()
	wantResults(t, out, map[string]string{"queue": "^2$", "queueMax": "^1$", "overflows": `^\d+$`})
	target.Accept(l, netlab.Echo)
	testenv.Until(t, "the queue to be emptied", 10*time.Second, func() bool {
		return prober.Probe("10.97.33.2:80", time.Second, "x") == nil
	})
	refute(t, check, at, "AcceptQueueNotFull", "queue 0/1")
}

func TestCheckSYNDropped(t *testing.T) {
	prober, target := netlab.PairIn(t, 33)
	target.Listen("10.97.33.2:80", 0)
	at := map[string]string{"address": "10.97.33.2", "port": "80", "window": "500ms"}
	check := CheckSYNDropped(host())
	// The window is at least as requested.
	refute(t, check, at, "NoSYNDropped", `dropped nothing in ([5-9]\d\dms|[1-9][\d.]*s); listener at 10.97.33.2:80: queue 0/0, 0 handshakes`)
	prober.Dial("10.97.33.2:80")
	at["window"] = "30s" // it ends with the first drop
	stop := keepProbing(prober, "10.97.33.2:80")
	out := confirm(t, check, at, "SYNDropped", `\d+ accept queue full, \d+ dropped by listeners .*; listener at 10.97.33.2:80: queue 1/0`)
	stop()
	wantResults(t, out, map[string]string{"drops": "^[1-9]", "overflows": "^[1-9]", "synQueueFull": "^0$"})
	// Packets dropped before they reach the listener don't count.
	target.DropTCP()
	at["window"] = "500ms"
	stop = keepProbing(prober, "10.97.33.2:80")
	refute(t, check, at, "NoSYNDropped", "dropped nothing")
	stop()
}

func TestNetMessagesAreBounded(t *testing.T) {
	long := strings.Repeat("x\x1b", 5000)
	if m := operation.VerdictOf("R", "%s", long).Message; len(m) > 4*operation.MaxMessage || strings.Contains(m, "\x1b") {
		t.Errorf("%d bytes", len(m))
	}
	r := newReport(nil)
	r.Text("a", long)
	for range 100 {
		r.Note("%s", long)
	}
	if out := r.Output(nil); len(out.Results["note"]) > 2<<10 || strings.Contains(out.Results["a"], "\x1b") {
		t.Errorf("%d bytes of notes", len(out.Results["note"]))
	}
}
