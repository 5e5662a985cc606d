package bpf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// ratioConnections is the number of connections in each half of a pair: they take 25 ms or more, so
// that variations of the machine affect both.
const ratioConnections = 500

// nodeTargets returns 200 targets, like a node with a hundred pods: ten ports on each of twenty
// addresses, the first of them given.
func nodeTargets(netns uint32, first uint16) (keys []SockTargetKey) {
	for i := range 200 {
		addr := netip.AddrFrom4([4]byte{192, 0, 2, byte(1 + i/10)})
		keys = append(keys, NewSockTargetKey(netns, addr, first+uint16(i%10)))
	}
	return keys
}

// processTime returns the CPU time of this process, including time in the kernel.
func processTime(b *testing.B) time.Duration {
	b.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts); err != nil {
		b.Fatal(err)
	}
	return time.Duration(ts.Nano())
}

// httpRequests makes connections as programs do: one request of package net/http per connection.
func httpRequests(b *testing.B) func(i int) error {
	b.Helper()
	l, err := net.Listen("tcp", fmt.Sprintf(":%d", benchPort)) // on the benchmark's thread, in its namespace
	if err != nil {
		b.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "ok")
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // always ErrServerClosed
	}()
	b.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	var conn net.Conn
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return conn, nil },
	}}
	return func(i int) error {
		at := netip.AddrPortFrom(address(i), benchPort).String()
		var err error
		if conn, err = net.Dial("tcp", at); err != nil { // dialed here, because this thread is in the namespace
			return err
		}
		resp, err := client.Get("http://" + at + "/healthz")
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		return err
	}
}

// BenchmarkConnectRatio compares the rate of connections with and without the programs, for
// connections to no target, in alternating pairs. Both ends are on this machine: its programs see
// each connection twice.
func BenchmarkConnectRatio(b *testing.B) {
	for _, w := range []struct {
		name string
		set  func(*testing.B) func(int) error
	}{{"system calls", netWorkloads[0].set}, {"HTTP", httpRequests}} {
		for _, c := range []struct {
			name     string
			empty    bool // a program that does nothing instead of ours
			none     bool
			onlyOnce bool // states from one program only, as where a hook sees connect() return
			targets  func(netns uint32) []SockTargetKey
		}{
			{name: "the same", none: true}, // without programs in both halves: shows the noise around a ratio of 1
			{name: "empty program", empty: true},
			{name: "no target"},
			{name: "200 targets of other ports", targets: func(n uint32) []SockTargetKey { return nodeTargets(n, 8000) }},
			{name: "200 targets of other ports, states by sock_ops alone", onlyOnce: true, targets: func(n uint32) []SockTargetKey { return nodeTargets(n, 8000) }},
			{name: "200 targets, some of its port", targets: func(n uint32) []SockTargetKey { return nodeTargets(n, benchPort-5) }},
		} {
			b.Run(w.name+"/"+c.name, func(b *testing.B) {
				l := benchStem(b, sockfail())
				n := enterBenchNet(b)
				r := ratio{loaded: l, do: w.set(b), onlyOnce: c.onlyOnce}
				switch {
				case c.none:
					r.attach = func(bool) error { return nil }
				case c.empty:
					r.attach = func(attached bool) error { return r.swapEmpty(b, attached) }
				default:
					if c.targets != nil {
						r.want = targetsOf(c.targets(n)...)
					}
					r.attach = r.swap
				}
				if err := r.swap(false); err != nil {
					b.Fatal(err)
				}
				r.run(b)
			})
		}
	}
}

// ratio compares connections with attached programs to those without.
type ratio struct {
	loaded *Loaded
	want   SockTargets
	do     func(i int) error
	attach func(bool) error
	detach func() // detaches the empty program
	i      int

	onlyOnce bool
}

// swap attaches everything that serves the targets, or detaches everything.
func (r *ratio) swap(attached bool) error {
	watched, change := SockTargets{}, r.loaded.Detach
	if attached {
		watched, change = r.want, r.loaded.Attach
	}
	if err := change("reset"); err != nil {
		return err
	}
	if err := r.loaded.WatchTargets(watched); err != nil || !r.onlyOnce {
		return err
	}
	return r.loaded.Detach(hookStateToo)
}

// swapEmpty attaches or detaches a program that does nothing.
func (r *ratio) swapEmpty(b *testing.B, attached bool) error {
	b.Helper()
	if r.detach != nil {
		r.detach()
		r.detach = nil
	}
	if attached {
		_, r.detach = emptyProgram(b, "inet_sock_set_state")
	}
	return nil
}

// half returns the CPU time and the wall time of its connections.
func (r *ratio) half(b *testing.B, attached bool) (cpu, wall float64) {
	b.Helper()
	if err := r.attach(attached); err != nil {
		b.Fatal(err)
	}
	connect := func(n int) {
		for range n {
			if err := r.do(r.i); err != nil {
				b.Fatal(err)
			}
			r.i++
		}
	}
	connect(ratioConnections / 5) // the caches are cold after attaching
	began, from := time.Now(), processTime(b)
	connect(ratioConnections)
	return float64(processTime(b) - from), float64(time.Since(began))
}

// run makes the pairs, alternating which half is first, and reports the medians.
func (r *ratio) run(b *testing.B) {
	b.Helper()
	var cpus, walls, times []float64
	first := true
	for b.Loop() {
		cpuWith, wallWith := r.half(b, first)
		cpuWithout, wallWithout := r.half(b, !first)
		if !first {
			cpuWith, cpuWithout, wallWith, wallWithout = cpuWithout, cpuWith, wallWithout, wallWith
		}
		cpus, walls = append(cpus, cpuWithout/cpuWith), append(walls, wallWithout/wallWith)
		times = append(times, cpuWithout/ratioConnections)
		first = !first
	}
	if err := errors.Join(r.attach(false), r.swap(false)); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(quantile(times, 0.5), "cpu-ns/connection")
	b.ReportMetric(quantile(cpus, 0.5), "cpu-ratio")
	b.ReportMetric(quantile(cpus, 0.25), "cpu-ratio-p25")
	b.ReportMetric(quantile(cpus, 0.75), "cpu-ratio-p75")
	b.ReportMetric(quantile(walls, 0.5), "wall-ratio")
}

func quantile(of []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
