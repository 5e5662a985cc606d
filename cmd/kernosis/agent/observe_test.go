package agent

import (
	"bytes"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/reporter/console"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/reporter/metrics"
)

// The whole processing of an event on one goroutine: engine, journal, metrics and output line.
// The event has the fields of a real OOM kill.
func BenchmarkObserve(b *testing.B) {
	set, err := detector.Load(detector.Shipped())
	if err != nil {
		b.Fatal(err)
	}
	for name, out := range map[string]func(io.Writer) console.Writer{"text": console.NewText, "json": console.NewJSON} {
		b.Run(name, func(b *testing.B) {
			store, err := journal.Open(b.TempDir(), journal.Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer store.Close()
			var line bytes.Buffer
			a := &pipeline{
				stateDir: b.TempDir(), log: slog.New(slog.DiscardHandler), metrics: metrics.New("benchmark", ""), journal: store,
				out: out(&line), engine: detector.NewEngine(set), wake: make(chan struct{}, 1),
			}
			ev := killedEvent()
			b.ReportAllocs()
			for b.Loop() {
				line.Reset()
				ev.BootTime++
				ev.Time = ev.Time.Add(1)
				a.observe(ev)
			}
			if line.Len() == 0 {
				b.Error("nothing was printed")
			}
			b.ReportMetric(float64(line.Len()), "line-bytes")
		})
	}
}

func killedEvent() *event.Event {
	group := event.Cgroup{ID: 71, Path: "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod6d4c.slice/cri-containerd-1f2e.scope"}
	victim := event.Task{PID: 4711, TGID: 4711, UID: 1000, Comm: "server", StartTime: event.Duration(time.Hour)}
	return &event.Event{
		Kind: event.OOMKill, Time: time.Now(), BootTime: event.Duration(hostfs.BootTime()), Source: "bpf/" + bpf.StemOOMKill,
		Task: &victim, Cgroup: &group,
		OOMKill: &event.OOMKillData{
			Scope: "memcg", Trigger: &victim, LimitCgroup: &group, Limit: 32 << 20, Usage: 32 << 20,
			TotalVM: 1 << 30, AnonRSS: 30 << 20, FileRSS: 1 << 20, PageTables: 1 << 17, OOMScoreAdj: 500,
		},
	}
}
