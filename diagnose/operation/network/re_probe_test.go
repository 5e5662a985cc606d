package network

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/kernosis/kernosis/collector/netlook"
	"github.com/kernosis/kernosis/collector/netprobe"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/vmtest/netlab"
	"github.com/kernosis/kernosis/vmtest/testenv"
	"github.com/kernosis/kernosis/vmtest/testserver"
)

// httpProbe serves HTTP in a namespace, with or without TLS.
func httpProbe(t *testing.T, n *netlab.Net, at string, secure bool, fn http.HandlerFunc) {
	t.Helper()
	testserver.HTTP(t, n.Listen(at, 128), secure, fn)
}

func TestReProbe(t *testing.T) {
	node, pod := netlab.PairIn(t, 34)
	uid, _ := podOf(t, pod)
	probe := ReProbe(labHost(t, node, pod))

	var seen atomic.Pointer[http.Request]
	handler := func(w http.ResponseWriter, r *http.Request) {
		seen.Store(r.Clone(r.Context()))
		switch r.URL.Path {
		case "/ok", "/":
			_, _ = io.WriteString(w, strings.Repeat("x", 100_000))
		case "/broken":
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/here":
			http.Redirect(w, r, "/ok", http.StatusFound)
		case "/elsewhere":
			http.Redirect(w, r, "http://10.97.34.1:9/secret", http.StatusFound)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		case "/slow":
			<-r.Context().Done()
		}
	}
	httpProbe(t, pod, "10.97.34.2:80", false, handler)
	httpProbe(t, pod, "[fd97:34::2]:80", false, handler)
	httpProbe(t, pod, "10.97.34.2:443", true, handler)
	serving := testserver.Health(t, pod.Listen("10.97.34.2:50", 128))
	serving.SetServingStatus("down", pb.HealthCheckResponse_NOT_SERVING)
	pod.Listen("127.0.0.1:90", 1)

	for name, c := range map[string]struct{ params, want map[string]string }{
		"tcp":                {map[string]string{"port": "80"}, map[string]string{"succeeded": "^true$", "phase": "^done$", "connectTime": "s$", "totalTime": "s$", "probed": "^10.97.34.2:80$", "error": "^$"}},
		"tcp refused":        {map[string]string{"port": "81"}, map[string]string{"succeeded": "^false$", "phase": "^connect$", "error": "connection refused"}},
		"http":               {map[string]string{"port": "80", "protocol": "http", "path": "/ok"}, map[string]string{"succeeded": "^true$", "status": "^200 OK$", "firstByteTime": "s$", "tlsTime": "^$"}},
		"http, IPv6":         {map[string]string{"port": "80", "protocol": "http", "address": "fd97:34::2"}, map[string]string{"succeeded": "^true$", "probed": `^\[fd97:34::2\]:80$`}},
		"http broken":        {map[string]string{"port": "80", "protocol": "http", "path": "broken"}, map[string]string{"succeeded": "^false$", "phase": "^answer$", "status": "^503 ", "error": "status 503"}},
		"redirect":           {map[string]string{"port": "80", "protocol": "http", "path": "/here"}, map[string]string{"succeeded": "^true$", "status": "^200 OK$", "redirect": "^$"}},
		"redirect elsewhere": {map[string]string{"port": "80", "protocol": "http", "path": "/elsewhere"}, map[string]string{"succeeded": "^true$", "status": "^302 ", "redirect": "^http://10.97.34.1:9/secret$"}},
		"redirects":          {map[string]string{"port": "80", "protocol": "http", "path": "/loop"}, map[string]string{"succeeded": "^false$", "error": "10 redirects"}},
		"http silent":        {map[string]string{"port": "80", "protocol": "http", "path": "/slow", "timeout": "1s"}, map[string]string{"succeeded": "^false$", "phase": "^answer$", "error": "the answer did not end within 1s"}},
		"https":              {map[string]string{"port": "443", "protocol": "https"}, map[string]string{"succeeded": "^true$", "tlsTime": "s$", "status": "200 OK"}},
		"https broken":       {map[string]string{"port": "443", "protocol": "https", "path": "/broken"}, map[string]string{"succeeded": "^false$", "status": "^503"}},
		"https to http":      {map[string]string{"port": "80", "protocol": "https"}, map[string]string{"succeeded": "^false$", "phase": "^tls$", "error": "HTTP response|first record"}},
		"grpc":               {map[string]string{"port": "50", "protocol": "grpc"}, map[string]string{"succeeded": "^true$", "status": "^SERVING$", "firstByteTime": "s$"}},
		"grpc not serving":   {map[string]string{"port": "50", "protocol": "grpc", "service": "down"}, map[string]string{"succeeded": "^false$", "status": "^NOT_SERVING$", "phase": "^answer$"}},
		"grpc unknown":       {map[string]string{"port": "50", "protocol": "grpc", "service": "none"}, map[string]string{"succeeded": "^false$", "error": "unknown service"}},
		"grpc refused":       {map[string]string{"port": "51", "protocol": "grpc"}, map[string]string{"succeeded": "^false$", "phase": "^connect$", "error": "connection refused"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.params["podUID"] = uid
			if c.params["timeout"] == "" {
				c.params["timeout"] = "10s"
			}
			out, _ := must(t, probe, c.params)
			wantResults(t, out, c.want)
		})
	}

	must(t, probe, map[string]string{"podUID": uid, "port": "80", "protocol": "http", "path": "/ok?a=b", "host": "web.example", "headers": "X-A: b: c|Accept: text/plain"})
	r := seen.Load()
	if r.Host != "web.example" || r.Header.Get("X-A") != "b: c" || r.Header.Get("Accept") != "text/plain" || r.URL.RawQuery != "a=b" ||
		!strings.HasPrefix(r.UserAgent(), "kube-probe/") || r.Header.Get("Accept-Encoding") != "" || !strings.HasPrefix(r.RemoteAddr, "10.97.34.1:") {
		t.Errorf("%s from %s: %+v", r.Host, r.RemoteAddr, r.Header)
	}

	// Only the pod can be reached.
	for address, message := range map[string]string{"10.97.34.1": "is not an address of pod", "127.0.0.1": "can't be reached", "8.8.8.8": "is not an address of pod"} {
		fail(t, probe, map[string]string{"podUID": uid, "address": address, "port": "90"}, message)
	}
	fail(t, probe, map[string]string{"address": "8.8.8.8", "port": "90"}, "no network namespace of this node has 8.8.8.8")
	fail(t, probe, map[string]string{"podUID": uid, "port": "80", "headers": "none", "protocol": "http"}, "want Name: value")
	// The pod has the address, but the node routes it elsewhere.
	var reached atomic.Bool
	httpProbe(t, node, "10.97.34.1:91", false, func(http.ResponseWriter, *http.Request) { reached.Store(true) })
	pod.AddAddress("10.97.34.1/32")
	out, _ := must(t, probe, map[string]string{"podUID": uid, "address": "10.97.34.1", "port": "91", "protocol": "http", "timeout": "10s"})
	wantResults(t, out, map[string]string{"succeeded": "^false$", "error": "the server at 10.97.34.1:91 is not in the network namespace of pod"})
	if reached.Load() {
		t.Error("the request went elsewhere")
	}
	nodePod, _ := podOf(t, node)
	fail(t, probe, map[string]string{"podUID": nodePod, "port": "80"}, "uses the node's network")
}

// A probe that may have reached another server says nothing about the pod's application.
func TestProbesOfAnotherServer(t *testing.T) {
	node, pod := netlab.PairIn(t, 34)
	uid, _ := podOf(t, pod)
	h := labHost(t, node, pod)
	node.Serve("10.97.34.1:91", silent)
	pod.AddAddress("10.97.34.1/32")
	for _, protocol := range []string{"tcp", "http", "https", "grpc"} {
		at := map[string]string{"podUID": uid, "address": "10.97.34.1", "port": "91", "protocol": protocol, "timeout": "20s"}
		for _, check := range []operation.Builtin{CheckAppSilent(h), CheckProbeFails(h), CheckProbeRecovers(h)} {
			t.Run(check.Name+" "+protocol, func(t *testing.T) {
				fail(t, check, at, "can't verify that the probe reached the pod: the server at 10.97.34.1:91 is not in the network namespace")
			})
		}
	}
}

// Neither does one that the agent could not make.
func TestProbesThatAreNotMade(t *testing.T) {
	node, pod := netlab.PairIn(t, 34)
	h := labHost(t, node, pod)
	pod.Serve("10.97.34.2:80", netlab.Echo)
	// The link to the node's namespace can be read, but not opened.
	proc1 := h.FS.Path("/proc/1")
	if err := errors.Join(os.Remove(proc1), os.MkdirAll(proc1+"/ns", 0o755), os.Symlink("net:["+inode(node)+"]", proc1+"/ns/net")); err != nil {
		t.Fatal(err)
	}
	for _, protocol := range []string{"tcp", "http", "https", "grpc"} {
		at := map[string]string{"netns": inode(pod), "address": "10.97.34.2", "port": "80", "protocol": protocol, "timeout": "20s"}
		for _, check := range []operation.Builtin{CheckAppSilent(h), CheckProbeFails(h), CheckProbeRecovers(h)} {
			t.Run(check.Name+" "+protocol, func(t *testing.T) {
				fail(t, check, at, "can't probe: in network namespace "+inode(node)+": ")
			})
		}
	}
}

// Neither does one that times out before the server is found.
func TestProbeOfAServerNotYetFound(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	found := make(chan struct{})
	defer close(found)
	p := &probing{Probe: netprobe.Probe{
		Protocol: netprobe.HTTP, To: netip.MustParseAddrPort(l.Addr().String()), Path: "/",
		Connected: func(netip.AddrPort, netip.AddrPort) error { <-found; return nil },
	}}
	r, err := probeOnce(t.Context(), p, time.Second)
	if err != nil || r.unverified() == nil {
		t.Errorf("%v, %v", r, err)
	}
}

// A probe's connection is found among more than one list of sockets has.
func TestProbeOfABusyPort(t *testing.T) {
	pod := netlab.New(t)
	to := netip.MustParseAddrPort("127.0.0.1:80")
	pod.Sysctl("net/core/somaxconn", "65535")
	pod.Listen(to.String(), 65535) // the ends of connections stay in its queue
	unlisted := map[netip.AddrPort]bool{}
	pod.In(func() error {
		for range 9000 {
			c, err := net.Dial("tcp", to.String())
			if err != nil {
				return err
			}
			unlisted[netip.MustParseAddrPort(c.LocalAddr().String())] = true
			if err := c.Close(); err != nil {
				return err
			}
		}
		return nil
	})
	p := &place{inode: pod.Inode, pid: holder(pod)}
	view, err := open(host(), p)
	if err != nil {
		t.Fatal(err)
	}
	defer view.Close()
	all, err := view.Sockets(netlook.AllStates, to.Port(), false, func(s *netlook.Socket) { delete(unlisted, s.Remote) })
	if err != nil || all || len(unlisted) == 0 {
		t.Fatalf("all sockets are listed %v, %v", all, err)
	}
	for local := range unlisted {
		if err := isTarget(host(), p, to, local); err != nil {
			t.Error(err)
		}
		break
	}
}

func TestCheckProbeRecovers(t *testing.T) {
	node, pod := netlab.PairIn(t, 34)
	check := CheckProbeRecovers(labHost(t, node, pod))
	at := map[string]string{"address": "10.97.34.2", "port": "80", "protocol": "http", "attempts": "4", "successes": "2", "period": "10ms", "timeout": "5s"}
	refute(t, check, at, "ProbeStillFails", "http probe of 10.97.34.2:80: 4 of 4 failed, .* failed at TCP handshake .* connection refused")
	var n atomic.Int32
	httpProbe(t, pod, "10.97.34.2:80", false, func(w http.ResponseWriter, _ *http.Request) {
		if n.Add(1) <= 2 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	out := confirm(t, check, at, "ProbeRecovered", `the last 2 of 4 succeeded \(200 OK in .*\); failed at answer .* status 500`)
	wantResults(t, out, map[string]string{"attempted": "^4$", "failed": "^2$", "lastError": "500"})
	confirm(t, check, at, "ProbeRecovered", "the last 2 of 2 succeeded .*; none failed")
	at["successes"] = "9"
	fail(t, check, at, "parameter attempts")
}

func TestCheckAppSilent(t *testing.T) {
	testenv.OnlyInTestAll(t)
	node, pod := netlab.PairIn(t, 34)
	check := CheckAppSilent(labHost(t, node, pod))
	// An application that is silent is so after any timeout; the other answers before its own.
	at := func(port, protocol string) map[string]string {
		timeout := "1s"
		if port == "84" {
			timeout = "20s"
		}
		return map[string]string{"address": "10.97.34.2", "port": port, "protocol": protocol, "timeout": timeout}
	}
	pod.Serve("10.97.34.2:81", silent)
	idle := make(chan struct{})
	defer close(idle)
	pod.Serve("10.97.34.2:82", func(net.Conn) { <-idle })
	pod.Listen("10.97.34.2:83", 5)
	httpProbe(t, pod, "10.97.34.2:84", false, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	httpProbe(t, pod, "10.97.34.2:85", true, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })

	// On a busy machine the application may do its part only after the timeout: then it is checked again.
	silently := func(params map[string]string, message string) (out operation.Output) {
		t.Helper()
		testenv.UntilShown(t, "AppSilent "+message, 30*time.Second, func() (bool, string) {
			var err error
			out, _, err = run(t, check, params)
			return out.Verdict != nil && out.Verdict.Reason == "AppSilent" && matches(out.Verdict.Message, message), fmt.Sprint(out.Verdict, err)
		})
		return out
	}
	out := silently(at("81", "http"), `accepted by network.test\[\d+\] in state ., which has read all of it \(\d+ bytes\) and has not answered for 1s`)
	wantResults(t, out, map[string]string{"accepted": "^true$", "unread": "^0$", "received": "^[1-9]", "phase": "^answer$", "ownerState": "^[RSD]$"})
	out = silently(at("82", "http"), `which has not read \d+ bytes of it in 1s`)
	wantResults(t, out, map[string]string{"unread": "^[1-9]"})
	silently(at("81", "https"), `TLS handshake`)
	silently(at("81", "grpc"), `has read all of it`)
	silently(at("85", "https"), `\(answer\)`)
	confirm(t, check, at("83", "http"), "AppNotAccepting", `has waited for 1s in the accept queue \(queue 1/5\), [1-9]\d* bytes of it have arrived; network.test`)
	confirm(t, check, at("83", "tcp"), "AppNotAccepting", `0 bytes of it have arrived`)

	refute(t, check, at("84", "http"), "AppAnswers", "not silent, but it failed at answer .* status 418")
	refute(t, check, at("82", "tcp"), "AppAnswers", "a TCP probe requires no more")
	refute(t, check, at("86", "http"), "NotConnected", "connection refused")
	refute(t, check, at("86", "tcp"), "NotConnected", "connection refused")
	mend := pod.DropTCP()
	refute(t, check, at("83", "http"), "NotConnected", "no connection within 1s")
	mend()
}

// The probe ends with the run.
func TestReProbeEnds(t *testing.T) {
	node, pod := netlab.PairIn(t, 34)
	pod.Serve("10.97.34.2:81", silent)
	h := labHost(t, node, pod)
	b := ReProbe(h)
	v, err := b.Fill(map[string]string{"address": "10.97.34.2", "port": "81", "protocol": "http", "timeout": "60s"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := timeout(t, 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, err := b.Run(ctx, &operation.Call{Parameters: v}); err == nil || time.Since(began) > 10*time.Second {
		t.Errorf("%v after %s", err, time.Since(began))
	}
}
