package bpf

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
)

// docs/benchmarks.md explains how to read these figures. Statistics cover the whole machine,
// including other processes' connections.

func benchKernel(b *testing.B) *Kernel {
	b.Helper()
	if os.Geteuid() != 0 {
		b.Skip("needs root to load programs")
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		b.Fatal(err)
	}
	k, err := OpenKernel()
	if err != nil {
		b.Fatal(err)
	}
	return k
}

func benchStem(b *testing.B, s Stem) *Loaded {
	b.Helper()
	l, err := Open(s, benchKernel(b), nil)
	b.Cleanup(func() { l.Close() })
	if err != nil {
		b.Fatal(err)
	}
	return l
}

// programCost is the cost of one program.
type programCost struct {
	runs uint64
	time time.Duration
}

// measure makes the kernel count what programs cost while fn does ops operations. The returned
// function reports the result, after the benchmark has run.
func measure(b *testing.B, programs map[string]*ebpf.Program, fn func() (ops int)) (report func()) {
	b.Helper()
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		b.Skip("kernel has no BPF statistics:", err)
	}
	defer stats.Close()
	read := func() map[string]programCost {
		costs := map[string]programCost{}
		for name, p := range programs {
			s, err := p.Stats()
			if err != nil {
				b.Fatal(err)
			}
			costs[name] = programCost{s.RunCount, s.Runtime}
		}
		return costs
	}
	before := read()
	ops := float64(fn())
	after := read()
	return func() {
		b.Helper()
		sum := 0.0
		for _, name := range slices.Sorted(maps.Keys(after)) {
			runs, ns := after[name].runs-before[name].runs, float64(after[name].time-before[name].time)
			if runs == 0 {
				continue
			}
			sum += ns
			b.ReportMetric(float64(runs)/ops, name+"-runs/op")
			b.ReportMetric(ns/float64(runs), name+"-ns/run")
		}
		b.ReportMetric(sum/ops, "bpf-ns/op")
	}
}

// BenchmarkFault measures the programs that run at a fault. Each fault is a real one.
func BenchmarkFault(b *testing.B) {
	b.Run("oomkill", func(b *testing.B) {
		l := benchStem(b, oomkill())
		oom := &inject.OOM{StateDir: b.TempDir()}
		if err := oom.Start(b.Context()); err != nil {
			b.Skip("no memory control group:", err)
		}
		b.Cleanup(func() { oom.Close() })
		benchmarkFault(b, l, 1, func() error {
			_, err := oom.Kill(b.Context())
			return err
		})
	})
	b.Run("diskio", func(b *testing.B) { benchmarkDiskFault(b, diskio(), 1) })
	// A record wakes the reader only if the reader has read all earlier ones.
	b.Run("diskio in a burst", func(b *testing.B) { benchmarkDiskFault(b, diskio(), 500) })
	b.Run("diskio before 5.18", func(b *testing.B) { benchmarkDiskFault(b, fallback(), 1) })
	b.Run("diskio of a bio-based device", func(b *testing.B) {
		l := benchStem(b, diskio())
		if err := l.Attach(HookDiskIOBio); err != nil {
			b.Skip(err)
		}
		f, page := fullZram(b).open(b), directBuffer(b)
		for i := range page {
			page[i] = byte(i * i >> 3) // a page of equal bytes takes no room
		}
		benchmarkFault(b, l, 1, func() error {
			// The limit leaves room for a page or two.
			for i := range int64(8) {
				if _, err := f.WriteAt(page, i*diskBlock); errors.Is(err, unix.EIO) {
					return nil
				} else if err != nil {
					return err
				}
			}
			return errors.New("no write failed")
		})
	})
	b.Run("fserror", func(b *testing.B) {
		l := benchStem(b, fserror())
		trigger := "/sys/fs/ext4/" + filepath.Base(benchExt4(b).path) + "/trigger_fs_error"
		benchmarkFault(b, l, 1, func() error { return os.WriteFile(trigger, []byte("kernosis benchmark"), 0) })
	})
	b.Run("sockfail", func(b *testing.B) {
		l := benchStem(b, sockfail())
		n := enterBenchNet(b)
		to := netip.MustParseAddrPort("127.0.0.1:9")
		watchBench(b, l, NewSockTargetKey(n, to.Addr(), to.Port()))
		benchmarkFault(b, l, 1, func() error {
			s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(s)
			if err := unix.Connect(s, sockaddr(to)); !errors.Is(err, unix.ECONNREFUSED) {
				return fmt.Errorf("connect: %w, want it refused", err)
			}
			return nil
		})
	})
}

func benchmarkDiskFault(b *testing.B, s Stem, drainEvery int) {
	l := benchStem(b, s)
	disk := &inject.DiskError{Kind: inject.DiskWrite, StateDir: b.TempDir()}
	if err := disk.Start(b.Context()); err != nil {
		b.Skip("no disk to break:", err)
	}
	b.Cleanup(func() { disk.Close() })
	benchmarkFault(b, l, drainEvery, func() error {
		_, ioErr, err := disk.Fail()
		if err == nil && !errors.Is(ioErr, unix.EIO) {
			err = ioErr
		}
		return err
	})
}

// benchmarkFault provokes one fault per operation, and fails if records are missing. It reads the
// ring after every drainEvery faults.
func benchmarkFault(b *testing.B, l *Loaded, drainEvery int, fault func() error) {
	b.Helper()
	records, i := 0, 0
	drain := func() {
		n, err := l.Drain(func([]byte) {})
		if err != nil {
			b.Fatal(err)
		}
		records += n
	}
	measure(b, l.programs, func() int {
		for b.Loop() {
			if err := fault(); err != nil {
				b.Fatal(err)
			}
			if i++; i%drainEvery == 0 {
				drain()
			}
		}
		return b.N
	})()
	drain()
	full, err := l.RingFull()
	if err != nil {
		b.Fatal(err)
	}
	skipped, err := l.Skipped()
	if err != nil {
		b.Fatal(err)
	}
	counted := 0 // in a storm of disk errors
	if l.Stem == StemDiskIO {
		all, err := l.UnrecordedDiskErrors(0)
		if err != nil {
			b.Fatal(err)
		}
		for _, e := range all {
			counted += int(e.N)
		}
	}
	// A caller can get an error without passing a hook (seen once in about 50,000 failed writes),
	// and other tests provoke faults at the same time.
	if reported := records + counted + int(full+skipped); reported < b.N-1-b.N/1000 {
		b.Errorf("%d faults gave %d records, %d counted, %d lost, %d runs skipped", b.N, records, counted, full, skipped)
	}
	b.ReportMetric(float64(full+skipped), "lost")
}

// benchExt4 returns a mounted ext4 that continues after an error.
func benchExt4(b *testing.B) blockDevice {
	b.Helper()
	mkfs, err := exec.LookPath(mkfsExt4[0])
	if err != nil {
		mkfs = filepath.Join("/sbin", mkfsExt4[0])
	}
	if _, err := os.Stat(mkfs); err != nil {
		b.Skipf("needs %s", mkfsExt4[0])
	}
	dir := b.TempDir()
	image, mnt := filepath.Join(dir, "image"), filepath.Join(dir, "mnt")
	if err := errors.Join(os.Mkdir(mnt, 0o700), os.WriteFile(image, make([]byte, 16<<20), 0o600)); err != nil {
		b.Fatal(err)
	}
	if out, err := exec.Command(mkfs, append(mkfsExt4[1:], image)...).CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	disk := attachLoop(b, image)
	if err := unix.Mount(disk.path, mnt, "ext4", 0, "errors=continue"); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := unix.Unmount(mnt, 0); err != nil {
			b.Error(err)
		}
	})
	return disk
}

// enterBenchNet moves the benchmark's goroutine into its own network namespace permanently, and
// returns the namespace's inode.
func enterBenchNet(b *testing.B) (inode uint32) {
	b.Helper()
	runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		b.Fatal(err)
	}
	ns, err := netns.Get()
	if err != nil {
		b.Fatal(err)
	}
	defer ns.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(ns), &st); err != nil {
		b.Fatal(err)
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		b.Fatal(err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		b.Fatal(err)
	}
	// Room for the TIME_WAIT connections of a whole benchmark: the kernel would log an overflow.
	if err := os.WriteFile("/proc/sys/net/ipv4/tcp_max_tw_buckets", []byte("1000000"), 0); err != nil {
		b.Log(err)
	}
	return uint32(st.Ino)
}

func watchBench(b *testing.B, l *Loaded, keys ...SockTargetKey) {
	b.Helper()
	if err := l.WatchTargets(targetsOf(keys...)); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := l.WatchTargets(SockTargets{}); err != nil {
			b.Error(err)
		}
	})
}

func sockaddr(at netip.AddrPort) *unix.SockaddrInet4 {
	return &unix.SockaddrInet4{Addr: at.Addr().As4(), Port: int(at.Port())}
}

// benchPort is the port of the servers below, on any address.
const benchPort = 4711

// server is a socket bound to benchPort.
func server(b *testing.B, kind int) int {
	b.Helper()
	s, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { unix.Close(s) })
	if err := unix.Bind(s, &unix.SockaddrInet4{Port: benchPort}); err != nil {
		b.Fatal(err)
	}
	if kind == unix.SOCK_STREAM {
		if err := unix.Listen(s, 16); err != nil {
			b.Fatal(err)
		}
	}
	return s
}

// deaf makes a socket drop all that it receives, for a reason that counts as a fault.
func deaf(tb testing.TB, s int) {
	tb.Helper()
	drop := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
	if err := unix.SetsockoptSockFprog(s, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &drop[0]}); err != nil {
		tb.Fatal(err)
	}
}

// address returns one of 127.0.0.1 to 127.0.0.250, in turn, because a single address runs out of
// ports.
func address(i int) netip.Addr { return netip.AddrFrom4([4]byte{127, 0, 0, byte(1 + i%250)}) }

// netWorkloads are what the network hooks see on a healthy machine, on one thread and over
// loopback: nothing is cheaper, so the programs' share is the largest possible. Each returns a
// function that makes the i-th operation.
var netWorkloads = []struct {
	name string
	set  func(*testing.B) func(i int) error
}{
	// Connect, accept, a byte each way, close.
	{"connection", func(b *testing.B) func(int) error {
		listener := server(b, unix.SOCK_STREAM)
		var one [1]byte
		return func(i int) error {
			s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(s)
			if err := unix.Connect(s, sockaddr(netip.AddrPortFrom(address(i), benchPort))); err != nil {
				return fmt.Errorf("connect: %w", err)
			}
			c, _, err := unix.Accept4(listener, unix.SOCK_CLOEXEC)
			if err != nil {
				return fmt.Errorf("accept: %w", err)
			}
			defer unix.Close(c)
			for _, pair := range [][2]int{{s, c}, {c, s}} {
				if _, err := unix.Write(pair[0], one[:]); err != nil {
					return err
				}
				if _, err := unix.Read(pair[1], one[:]); err != nil {
					return err
				}
			}
			return nil
		}
	}},
	// A datagram that nobody receives: its drop reason is ignored at once.
	{"normal drop", func(b *testing.B) func(int) error { return datagrams(b) }},
	// A datagram dropped for a reason that counts: its headers are read.
	{"UDP drop", func(b *testing.B) func(int) error {
		deaf(b, server(b, unix.SOCK_DGRAM))
		return datagrams(b)
	}},
	// A SYN dropped for a reason that counts: it is looked up among the targets.
	{"SYN drop", func(b *testing.B) func(int) error {
		deaf(b, server(b, unix.SOCK_STREAM))
		return func(i int) error {
			s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
			if err != nil {
				return err
			}
			defer unix.Close(s)
			if err := unix.Connect(s, sockaddr(netip.AddrPortFrom(address(i), benchPort))); !errors.Is(err, unix.EINPROGRESS) {
				return fmt.Errorf("connect: %w", err)
			}
			return nil
		}
	}},
}

func datagrams(b *testing.B) func(int) error {
	b.Helper()
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { unix.Close(s) })
	var one [1]byte
	return func(i int) error {
		return unix.Sendto(s, one[:], 0, sockaddr(netip.AddrPortFrom(address(i), benchPort)))
	}
}

// measured is the number of operations per measurement: means over so many repeat within a few
// percent.
const measured = 3000

// BenchmarkNetwork measures what the sockfail programs cost connections and packets that are
// healthy or not watched.
func BenchmarkNetwork(b *testing.B) {
	elsewhere := netip.MustParseAddr("192.0.2.1")
	for _, w := range netWorkloads {
		for _, c := range []struct {
			name    string
			for1    string // only this workload; empty: all
			load    bool
			targets func(netns uint32) []SockTargetKey
		}{
			{name: "no program"},
			{name: "empty program", for1: "connection"},
			{name: "no target", for1: "connection", load: true},
			{name: "another target", load: true, targets: func(n uint32) []SockTargetKey {
				return []SockTargetKey{NewSockTargetKey(n, elsewhere, benchPort)}
			}},
			{name: "200 targets of other ports", load: true, targets: func(n uint32) []SockTargetKey { return nodeTargets(n, 8000) }},
			{name: "200 targets, some of its port", for1: "connection", load: true, targets: func(n uint32) []SockTargetKey { return nodeTargets(n, benchPort-5) }},
			// The most lookups possible: one for each class of wildcard except "anything", which
			// matches every connection. Packets are looked up without the namespace, so the last
			// key applies to all of them.
			{name: "7 classes of other targets", load: true, targets: func(n uint32) []SockTargetKey {
				return []SockTargetKey{
					NewSockTargetKey(n, elsewhere, 9), NewSockTargetKey(n, elsewhere, 0),
					NewSockTargetKey(0, elsewhere, 9), NewSockTargetKey(0, elsewhere, 0),
					NewSockTargetKey(n, netip.Addr{}, 9), NewSockTargetKey(0, netip.Addr{}, 9),
					NewSockTargetKey(1, netip.Addr{}, 0),
				}
			}},
			{name: "its target", for1: "connection", load: true, targets: func(n uint32) []SockTargetKey {
				var keys []SockTargetKey
				for i := range 250 {
					keys = append(keys, NewSockTargetKey(n, address(i), benchPort))
				}
				return keys
			}},
		} {
			if c.for1 != "" && c.for1 != w.name {
				continue
			}
			b.Run(w.name+"/"+c.name, func(b *testing.B) {
				benchKernel(b) // or skip
				l, programs := &Loaded{}, map[string]*ebpf.Program{}
				switch {
				case c.load:
					l = benchStem(b, sockfail())
					programs = l.programs
				case c.name == "empty program":
					empty, _ := emptyProgram(b, "inet_sock_set_state")
					programs = map[string]*ebpf.Program{"empty": empty}
				}
				n := enterBenchNet(b)
				if c.targets != nil {
					watchBench(b, l, c.targets(n)...)
				}
				do, i := w.set(b), 0
				op := func() {
					if err := do(i); err != nil {
						b.Fatal(err)
					}
					i++
				}
				// Measured separately, because measuring costs more than most runs.
				report := measure(b, programs, func() int {
					for range measured {
						op()
					}
					return measured
				})
				for b.Loop() {
					op()
				}
				report()
				if l.Ring() != nil && l.Ring().Pending() > 0 {
					b.Errorf("%d bytes of records of healthy traffic", l.Ring().Pending())
				}
			})
		}
	}
}

// emptyProgram returns a program that does nothing: its statistics are the cost of the statistics
// themselves. It is attached until the returned function is called, or the benchmark ends.
func emptyProgram(b *testing.B, tracepoint string) (p *ebpf.Program, detach func()) {
	b.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.RawTracepoint, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		b.Fatal(err)
	}
	lk, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: tracepoint, Program: p})
	if err != nil {
		b.Fatal(err)
	}
	detach = sync.OnceFunc(func() { lk.Close(); p.Close() })
	b.Cleanup(detach)
	return p, detach
}

// BenchmarkRing measures reading records from the ring and committing them. An operation reads the
// whole ring, which is filled once and read repeatedly.
func BenchmarkRing(b *testing.B) {
	canaries := func(b *testing.B) *Loaded {
		l := benchStem(b, oomkill())
		for nonce := range uint64(20_000) { // it has room for 21,845
			if err := l.RunCanary(nonce); err != nil {
				b.Fatal(err)
			}
		}
		return l
	}
	kills := func(b *testing.B) *Loaded {
		l := benchStem(b, oomkill())
		// Without a victim: the record is as large as any other.
		for range 600 { // it has room for 660
			if _, err := l.programs[OomkillProgVictimRaw].Run(&ebpf.RunOptions{Context: make([]byte, 16)}); err != nil {
				b.Fatal(err)
			}
		}
		return l
	}
	for _, c := range []struct {
		name string
		fill func(*testing.B) *Loaded
		read func(l *Loaded) int
	}{
		{"canary/one commit", canaries, func(l *Loaded) (n int) {
			for l.ring.Next() != nil {
				n++
			}
			l.ring.Commit()
			return n
		}},
		{"canary/drain", canaries, func(l *Loaded) int {
			n, _ := l.Drain(func([]byte) {})
			return n
		}},
		{"canary/drain, header", canaries, drainHeaders},
		{"oomkill/drain, header", kills, drainHeaders},
	} {
		b.Run(c.name, func(b *testing.B) {
			l := c.fill(b)
			first, have := l.ring.next, 0
			if lost, err := l.RingFull(); err != nil || lost > 0 {
				b.Fatalf("%d records found the ring full (%v)", lost, err)
			}
			b.ReportAllocs()
			for b.Loop() {
				// The kernel only checks whether there is room.
				l.ring.next = first
				l.ring.consumed().Store(first)
				have = c.read(l)
			}
			if have == 0 {
				b.Fatal("the ring is empty")
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*have), "ns/record")
		})
	}
}

func drainHeaders(l *Loaded) int {
	bad := 0
	n, _ := l.Drain(func(raw []byte) {
		if _, err := ParseHeader(raw); err != nil {
			bad++
		}
	})
	return n - bad
}
