package collector

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/process"
	"github.com/kernosis/kernosis/vmtest/netlab"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

const (
	// healthyTargets is what a node with a hundred pods probes, all at once as after kubelet's
	// start; healthyRounds of these are 1,000 probes.
	healthyTargets = 200
	healthyRounds  = 5
	// healthyPeriod is the shortest period of a probe, after which the next round begins.
	healthyPeriod = time.Second
	// healthyTimeout is so long that a probe exceeds it only on an extremely overloaded machine,
	// which the test does not cover.
	healthyTimeout = 45 * time.Second
	// healthyLimit bounds the test.
	healthyLimit = 4 * time.Minute
)

// Probes of healthy targets are never reported as failed, however busy the machine and the network
// are.
func TestSockFailHealthy(t *testing.T) {
	testenv.OnlyInTestAll(t)
	prober, target := netlab.Pair(t)
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Within(healthyLimit))
	defer cancel()

	// 20 pods of ten ports each.
	var targets []Target
	for pod := range healthyTargets / 10 {
		addr := fmt.Sprintf("10.97.31.%d", 100+pod)
		target.AddAddress(addr + "/24")
		for port := range 10 {
			targets = append(targets, Target{
				Address: netip.MustParseAddr(addr), Port: uint16(8000 + port), NetNS: prober.Inode, SlowAfter: healthyTimeout,
			})
		}
	}
	for port := range 10 {
		serveHealth(t, target, 8000+port)
	}
	target.Serve("10.97.31.2:9", func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	a := newSockAgent(t)
	s := &Sources{env: a.s.env}
	if err := s.SetTargets("probes", targets); err != nil {
		t.Fatal(err)
	}
	a.poll()

	busy, stop := context.WithCancel(ctx)
	var load sync.WaitGroup
	defer load.Wait()
	defer stop()
	burnCPUs(busy, t, &load)
	streamed := loadNetwork(busy, prober, &load)

	period := time.NewTicker(healthyPeriod)
	defer period.Stop()
	var took atomic.Int64 // the longest
	for range healthyRounds {
		var round sync.WaitGroup
		for _, target := range targets {
			round.Go(func() {
				time.Sleep(rand.N(healthyPeriod / 4)) //nolint:gosec // kubelet's jitter
				began := time.Now()
				if err := probeAsKubelet(ctx, prober, &target); err != nil {
					t.Error(err)
				}
				for d := int64(time.Since(began)); ; {
					if longest := took.Load(); d <= longest || took.CompareAndSwap(longest, d) {
						break
					}
				}
			})
		}
		round.Wait()
		a.poll()
		<-period.C
	}
	stop()
	load.Wait()

	a.poll()
	for _, ev := range a.events(0) {
		d := ev.SockFail
		t.Errorf("%s reported for %+v: %s, evidence %q", ev.Kind, *ev.Conn, d.Verdict, d.Evidence)
	}
	outcomes, err := s.Outcomes("probes")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range outcomes {
		if o.Succeeded != healthyRounds || o.Failed != 0 {
			t.Errorf("%s:%d: %d succeeded, %d failed, of %d", o.Target.Address, o.Target.Port, o.Succeeded, o.Failed, healthyRounds)
		}
	}
	if lost, err := a.l.RingFull(); err != nil || lost != 0 {
		t.Errorf("lost %d (%v)", lost, err)
	}
	t.Logf("%d probes, the longest %s; %d MiB and %d connections of others meanwhile", healthyTargets*healthyRounds,
		time.Duration(took.Load()).Round(time.Millisecond), streamed.bytes.Load()>>20, streamed.conns.Load())
}

// serveHealth answers at a port of all the namespace's addresses, sometimes late.
func serveHealth(t *testing.T, n *netlab.Net, port int) {
	t.Helper()
	var l net.Listener
	n.In(func() (err error) {
		var lc net.ListenConfig
		l, err = lc.Listen(t.Context(), "tcp", fmt.Sprintf(":%d", port))
		return err
	})
	server := &http.Server{
		ReadHeaderTimeout: healthyTimeout,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if rand.N(10) == 0 { //nolint:gosec // any will do
				_, _ = io.WriteString(w, strings.Repeat("begun ", 100))
				w.(http.Flusher).Flush()
				select {
				case <-time.After(200 * time.Millisecond):
				case <-r.Context().Done():
				}
			}
			_, _ = io.WriteString(w, "ok")
		}),
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // always ErrServerClosed
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
}

// probeAsKubelet makes one HTTP probe like kubelet: a connection of its own with a linger of one
// second, a single timeout for everything, and at most 10 KiB of the answer.
func probeAsKubelet(ctx context.Context, n *netlab.Net, to *Target) error {
	dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
		control := c.Control(func(fd uintptr) {
			err = unix.SetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 1})
		})
		if control != nil {
			return control
		}
		return err
	}}
	client := http.Client{Timeout: healthyTimeout, Transport: &http.Transport{
		DisableKeepAlives: true, DisableCompression: true,
		DialContext: func(ctx context.Context, network, addr string) (c net.Conn, err error) {
			err = n.Do(func() error {
				c, err = dialer.DialContext(ctx, network, addr)
				return err
			})
			return c, err
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+netip.AddrPortFrom(to.Address, to.Port).String()+"/healthz", nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, 10<<10))
	return err
}

// burnCPUs keeps all CPUs busy, with low priority.
func burnCPUs(ctx context.Context, t *testing.T, all *sync.WaitGroup) {
	t.Helper()
	for range 2 * runtime.NumCPU() {
		burner := exec.CommandContext(ctx, "nice", "-n", "5", "sh", "-c", "while :; do :; done")
		if err := process.StartTied(burner); err != nil {
			t.Fatal(err)
		}
		all.Go(func() { _ = burner.Wait() }) // killed
	}
}

// traffic counts what the network carried besides the probes.
type traffic struct{ bytes, conns atomic.Int64 }

// loadNetwork sends a stream, and one connection after another, along the probes' path.
func loadNetwork(ctx context.Context, n *netlab.Net, all *sync.WaitGroup) *traffic {
	var done traffic
	connect := func(use func(net.Conn)) {
		for ctx.Err() == nil {
			var c net.Conn
			err := n.Do(func() (err error) {
				var d net.Dialer
				c, err = d.DialContext(ctx, "tcp", "10.97.31.2:9")
				return err
			})
			if err != nil {
				continue // at the end
			}
			done.conns.Add(1)
			use(c)
			_ = c.Close()
		}
	}
	block := make([]byte, 64<<10)
	all.Go(func() {
		connect(func(c net.Conn) {
			for range 1000 {
				sent, err := c.Write(block)
				done.bytes.Add(int64(sent))
				if err != nil || ctx.Err() != nil {
					return
				}
			}
		})
	})
	all.Go(func() { connect(func(net.Conn) {}) })
	return &done
}
