package collector

import (
	"io"
	"log/slog"
	"os"
	"testing"

	"github.com/cilium/ebpf/rlimit"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/console"
	"github.com/kernosis/kernosis/reporter/journal"
)

// realKills provokes OOM kills and returns their stem and records, which stay in the kernel's ring
// while the benchmark runs.
func realKills(b *testing.B, n int) (*stem, [][]byte) {
	b.Helper()
	if os.Geteuid() != 0 {
		b.Skip("needs root to load programs and provoke OOM kills")
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		b.Fatal(err)
	}
	k, err := bpf.OpenKernel()
	if err != nil {
		b.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	env := newEnvironment(Config{HostRoot: "/"}, log)
	b.Cleanup(func() { env.close() })
	env.oomCode() // not part of the first kill's time
	s := &stem{name: bpf.StemOOMKill, env: env, log: log, source: "bpf/" + bpf.StemOOMKill, decoder: decoder{decode: newOOMKill(env).decode}}
	for _, blueprint := range bpf.Stems() {
		if blueprint.Name == s.name {
			s.loaded, s.err = bpf.Open(blueprint, k, nil)
		}
	}
	b.Cleanup(func() { s.loaded.Close() })
	if s.err != nil {
		b.Fatal(s.err)
	}
	oom := &inject.OOM{StateDir: b.TempDir()}
	if err := oom.Start(b.Context()); err != nil {
		b.Skip("no memory control group:", err)
	}
	b.Cleanup(func() { oom.Close() })
	var records [][]byte
	for range n {
		if _, err := oom.Kill(b.Context()); err != nil {
			b.Fatal(err)
		}
		// Not committed, so that it stays.
		records = append(records, s.loaded.Ring().Next())
	}
	return s, records
}

// BenchmarkRecord measures the stages that a record passes; each except "attribution" includes
// those before it. BenchmarkRing of package bpf measures what precedes them. The records are from
// real OOM kills and are repeated as new ones, with the shipped rules.
func BenchmarkRecord(b *testing.B) {
	s, records := realKills(b, 23)
	shipped, err := detector.Load(detector.Shipped())
	if err != nil {
		b.Fatal(err)
	}
	var sink event.Event
	stage := func(name string, emit func(testing.TB) Emit) {
		b.Run(name, func(b *testing.B) {
			take, boot, i := emit(b), event.Duration(0), 0
			b.ReportAllocs()
			for b.Loop() {
				s.handle(records[i], func(ev *event.Event) {
					boot++ // like a new record
					ev.BootTime += boot
					take(ev)
				})
				if i++; i == len(records) {
					i = 0
				}
			}
		})
	}

	b.Run("header", func(b *testing.B) {
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			if _, err := bpf.ParseHeader(records[i]); err != nil {
				b.Fatal(err)
			}
			if i++; i == len(records) {
				i = 0
			}
		}
	})
	b.Run("attribution", func(b *testing.B) {
		o := newOOMKill(s.env)
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			r, err := bpf.View[bpf.OOMKill](records[i])
			if err != nil {
				b.Fatal(err)
			}
			o.subject(&sink, &r.Memory, &r.Default)
			o.chain(&r.Memory, int(r.LimitLevel))
			if i++; i == len(records) {
				i = 0
			}
		}
	})
	stage("decoded", func(testing.TB) Emit { return func(ev *event.Event) { sink = *ev } })

	engine := func(e *detector.Engine, reported func(journal.Entry)) Emit {
		var now hostfs.Timekeeper
		return func(ev *event.Event) {
			if e.Seen(ev) {
				b.Error("reported as seen before")
			}
			wall, boot := now.Now()
			entry := journal.NewEntry(event.Moment{Wall: wall, Boot: boot})
			entry.Event, entry.Transitions = ev, e.Observe(ev, entry.Moment())
			reported(entry)
		}
	}
	ignore := func(journal.Entry) {}
	// The cost of the engine if no rule matches.
	none, err := detector.Load()
	if err != nil {
		b.Fatal(err)
	}
	stage("engine without rules", func(testing.TB) Emit { return engine(detector.NewEngine(none), ignore) })
	stage("engine", func(testing.TB) Emit { return engine(detector.NewEngine(shipped), ignore) })
	journaled := func(b testing.TB, then func(journal.Entry)) func(journal.Entry) {
		j, err := journal.Open(b.TempDir(), journal.Options{})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { j.Close() })
		return func(e journal.Entry) {
			withoutEvidence(e.Transitions)
			if e.Seq, e.Line, err = j.Add(e); err != nil {
				b.Error(err)
			}
			then(e)
			if e.Seq%64 == 0 { // in a burst, the agent waits for the disk once for many entries
				if err := j.Flush(); err != nil {
					b.Error(err)
				}
			}
		}
	}
	stage("journal", func(b testing.TB) Emit { return engine(detector.NewEngine(shipped), journaled(b, ignore)) })
	stage("line", func(b testing.TB) Emit {
		out := console.NewText(io.Discard)
		return engine(detector.NewEngine(shipped), journaled(b, func(e journal.Entry) {
			if err := out.Write(e); err != nil {
				b.Error(err)
			}
		}))
	})
}

// withoutEvidence does what the agent does before it writes transitions.
func withoutEvidence(transitions []problem.Transition) {
	for _, t := range transitions {
		if t.Problem != nil {
			t.Problem.Evidence = nil
		}
	}
}
