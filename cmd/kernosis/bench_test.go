package main

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/vmtest/agenttest"
)

// docs/benchmarks.md explains these figures.

// stampedLines records when each output line of an agent could be read.
type stampedLines struct {
	cpu int // where the reader runs; -1: anywhere

	mu   sync.Mutex
	boot []time.Duration // times of the lines since boot, as the kernel's timestamps
}

// start calls Agent.Start and records the time of each line.
func (s *stampedLines) start(b *testing.B, a *agenttest.Agent) {
	b.Helper()
	a.Output = func(out io.ReadCloser) io.Reader {
		// A separate blocking file, because the runtime's poller would wake another
		// thread first.
		fd, err := unix.Dup(int(out.(*os.File).Fd()))
		if err != nil {
			b.Fatal(err)
		}
		if err := unix.SetNonblock(fd, false); err != nil {
			b.Fatal(err)
		}
		r, w := io.Pipe()
		go s.copy(os.NewFile(uintptr(fd), "stdout of the agent"), w)
		return r
	}
	a.Start()
}

// copy passes lines on from r to w.
func (s *stampedLines) copy(r io.ReadCloser, w io.WriteCloser) {
	defer r.Close()
	defer w.Close()
	runtime.LockOSThread() // never unlocked
	if s.cpu >= 0 {
		var set unix.CPUSet
		set.Set(s.cpu)
		if err := unix.SchedSetaffinity(0, &set); err != nil {
			return // shows as no line at all
		}
	}
	lines := bufio.NewReaderSize(r, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		now := hostfs.BootTime()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.boot = append(s.boot, now)
		s.mu.Unlock()
		if _, err := w.Write(line); err != nil {
			return
		}
	}
}

// 101 real OOM kills, from the kernel's timestamp to the engine, and to the line that a reader of the
// agent's standard output gets. The journal is written in between. With "another CPU" neither the
// agent nor the reader can be woken on the CPU where the kernel is busy with the kill.
func BenchmarkDetectionLatency(b *testing.B) {
	needKernel(b)
	b.Run("any CPU", func(b *testing.B) { benchmarkLatency(b, false) })
	b.Run("another CPU", func(b *testing.B) {
		if runtime.NumCPU() < 2 {
			b.Skip("needs two CPUs")
		}
		benchmarkLatency(b, true)
	})
}

func benchmarkLatency(b *testing.B, apart bool) {
	const each, killCPU, otherCPU = 101, 0, 1
	const apartFor = 150 * time.Millisecond // kills that follow each other sooner are a storm, which the agent reads more rarely
	var engine, line []time.Duration
	for b.Loop() {
		p, lines := newAgent(b), &stampedLines{cpu: -1}
		if apart {
			lines.cpu = otherCPU
		}
		lines.start(b, p)
		p.WaitSources(0)
		oom := &inject.OOM{StateDir: b.TempDir()}
		if err := oom.Start(b.Context()); err != nil {
			b.Skip("no memory control group:", err)
		}
		if apart {
			pin(b, p.PID(), otherCPU)
			pin(b, oom.MainPID(), killCPU)
		}
		for range each {
			time.Sleep(apartFor)
			if _, err := oom.Kill(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
		entries := p.Wait("last kill", 20*time.Second, func(entries []journal.Entry) bool {
			return len(kills(entries, oom.Cgroup())) == each
		})
		if err := oom.Close(); err != nil {
			b.Error(err)
		}
		p.Stop()
		for i, e := range entries {
			if len(kills([]journal.Entry{e}, oom.Cgroup())) > 0 {
				engine = append(engine, e.Now.Sub(e.Event.Time))
				line = append(line, lines.boot[i]-time.Duration(e.Event.BootTime))
			}
		}
	}
	for name, d := range map[string][]time.Duration{"engine": engine, "line": line} {
		slices.Sort(d)
		b.ReportMetric(d[len(d)/2].Seconds()*1e6, name+"-p50-us")
		b.ReportMetric(d[len(d)*99/100].Seconds()*1e6, name+"-p99-us")
		b.ReportMetric(d[len(d)-1].Seconds()*1e6, name+"-max-us")
	}
	b.ReportMetric(float64(len(line)), "kills")
}

// pin pins a process to one CPU, including its children and new threads.
func pin(b *testing.B, pid, cpu int) {
	b.Helper()
	threads, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "task"))
	if err != nil {
		b.Fatal(err)
	}
	var set unix.CPUSet
	set.Set(cpu)
	for _, t := range threads {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			b.Fatal(err)
		}
		if err := unix.SchedSetaffinity(tid, &set); err != nil {
			b.Fatalf("pin to CPU %d: %v", cpu, err)
		}
	}
}

// What the start of an agent costs, until all its sources are up, and how much memory its BPF maps
// and programs take.
func BenchmarkStart(b *testing.B) {
	needKernel(b)
	var start, startCPU time.Duration
	var memory agenttest.Memory
	for b.Loop() {
		p := newAgent(b)
		began := time.Now()
		p.Start()
		p.WaitSources(0)
		pid := p.PID()
		start, startCPU = time.Since(began), agenttest.CPUTime(b, pid)
		memory = agenttest.MemoryOf(b, pid)
		p.Stop()
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(start.Seconds()*1e3, "start-ms")
	b.ReportMetric(startCPU.Seconds()*1e3, "start-cpu-ms")
	b.ReportMetric(memory.BPF/(1<<20), "bpf-MiB")
}
