package local_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/diagnose/why"
	"github.com/kernosis/kernosis/diagnose/why/local"
	"github.com/kernosis/kernosis/reporter/journal"
)

const (
	uid   = "4a1f7c52-8f1e-4d0c-9a55-0d6f2f6b1c11"
	other = "5b1f7c52-8f1e-4d0c-9a55-0d6f2f6b1c11"
)

// node is a journal like an agent writes it, with the shipped rules.
type node struct {
	t       *testing.T
	dir     string
	journal *journal.Journal
	engine  *detector.Engine
	now     event.Moment
	seen    event.Duration
}

func newNode(t *testing.T) *node {
	t.Helper()
	set, err := detector.Load(detector.Shipped())
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, dir: filepath.Join(t.TempDir(), "journal"), engine: detector.NewEngine(set), now: event.Moment{Wall: time.Date(2026, 2, 14, 10, 0, 0, 0, time.UTC), Boot: time.Hour}}
	if n.journal, err = journal.Open(n.dir, journal.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.journal.Close() })
	return n
}

func (n *node) append(e journal.Entry) {
	n.t.Helper()
	for _, tr := range e.Transitions {
		if tr.Problem != nil {
			tr.Problem.Evidence = nil
		}
	}
	if _, _, err := n.journal.Add(e); err != nil || n.journal.Flush() != nil {
		n.t.Fatal(err)
	}
}

// after lets time pass, and then processes an event.
func (n *node) after(d time.Duration, ev *event.Event) {
	n.t.Helper()
	for range d / time.Second {
		n.now = n.now.Add(time.Second)
		if tr := n.engine.Tick(n.now); len(tr) > 0 {
			n.append(journal.Entry{Now: n.now.Wall, Transitions: tr})
		}
	}
	if ev == nil {
		return
	}
	n.seen++
	ev.Time, ev.BootTime = n.now.Wall, event.Duration(n.now.Boot)+n.seen
	n.append(journal.Entry{Now: n.now.Wall, Event: ev, Transitions: n.engine.Observe(ev, n.now)})
}

func (n *node) read(s why.Subject) (why.Input, error) {
	n.t.Helper()
	return local.Read(local.Config{Dir: n.dir, Subject: s, Now: n.now.Wall, Since: time.Hour}, goOn)
}

func pod(uid string) *event.Container {
	return &event.Container{ID: uid[:2] + strings.Repeat("8a", 31), Runtime: "containerd", PodUID: uid}
}

func oom(uid string) *event.Event {
	return &event.Event{
		Kind: event.OOMKill, Task: &event.Task{PID: 4122, Comm: "worker"}, Container: pod(uid), Cgroup: &event.Cgroup{Path: "/kubepods/x"},
		OOMKill: &event.OOMKillData{Scope: "memcg", Limit: 32 << 20, Usage: 32 << 20, AnonRSS: 31 << 20},
	}
}

func source(stem string, up bool) *event.Event {
	return &event.Event{Kind: event.Source, SourceUp: &event.SourceData{Stem: stem, Up: up, Reason: "operation not permitted"}}
}

// names returns an event that makes a pod's name known, as a failed probe does.
func names(uid string) *event.Event {
	return &event.Event{Kind: event.Probe, CPU: event.NoCPU, Container: pod(uid), Probe: &event.ProbeData{
		Name: "shop/web-1 app", Probe: "liveness", Namespace: "shop", Pod: "web-1", Container: "app", Handler: "http", Period: event.Duration(10 * time.Second),
		Failures: 1, Threshold: 3, ProbeOutcome: event.ProbeOutcome{Feed: event.ProbeObserved, Verdict: event.VerdictRefused, Cause: "nothing listens on :8080"},
	}}
}

func goOn() error { return nil }

func rulesOf(in why.Input) (list []string) {
	for _, p := range in.Problems {
		list = append(list, p.Rule)
	}
	return list
}

// A journal shows what happened to a pod, and what has ended since.
func TestPod(t *testing.T) {
	n := newNode(t)
	n.append(journal.Entry{Now: n.now.Wall, Boot: "b1"})
	n.after(time.Second, source("oomkill", true))
	n.after(0, source("sockfail", true))
	n.after(time.Second, oom(uid))
	n.after(time.Second, oom(other))
	n.after(0, names(uid))
	for _, s := range []why.Subject{{Kind: why.KindPod, Namespace: "shop", Name: "web-1"}, {Kind: why.KindPod, Name: uid}} {
		in, err := n.read(s)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(in.Problems, func(p why.Problem) bool { return p.Rule == "oom-kill" })
		if i < 0 || in.Subject.UID != uid || in.Subject.String() != "shop/web-1" || len(in.Blind) != 0 || slices.ContainsFunc(in.Problems, func(p why.Problem) bool { return p.Pod == other }) {
			t.Fatalf("%+v", in)
		}
		p := in.Problems[i]
		if !p.Lasts || p.Count != 1 || p.Verdict != "memcg" || len(p.Evidence) == 0 || p.Doc != "problems/OOMKilling" || p.Container != "4a8a8a8a8a8a" {
			t.Errorf("%+v", p)
		}
		if a := why.Build(in); a.Outcome != why.Found || !strings.Contains(a.Causes[0].Message, "pod shop/web-1") {
			t.Errorf("%+v", a)
		}
	}
	n.after(10*time.Minute, nil)
	in, err := n.read(why.Subject{Kind: why.KindPod, Name: uid})
	if err != nil || len(in.Problems) == 0 || slices.ContainsFunc(in.Problems, func(p why.Problem) bool { return p.Lasts }) {
		t.Errorf("%+v, %v", in.Problems, err)
	}
	n.after(time.Hour, nil)
	// Time alone makes no entries; an event of a source does.
	n.after(0, source("oomkill", true))
	if in, err = n.read(why.Subject{Kind: why.KindPod, Namespace: "shop", Name: "web-1"}); err != nil || len(in.Problems) != 0 {
		t.Errorf("%+v, %v", in.Problems, err)
	}
	if a := why.Build(in); a.Outcome != why.Healthy {
		t.Errorf("%+v", a)
	}
}

// A recreated pod of a StatefulSet keeps its name: the name means the newest pod.
func TestRecreated(t *testing.T) {
	n := newNode(t)
	for _, uid := range []string{uid, other} {
		n.after(time.Second, names(uid))
		n.after(time.Second, oom(uid))
	}
	for range 50 {
		in, err := n.read(why.Subject{Kind: why.KindPod, Namespace: "shop", Name: "web-1"})
		if err != nil || in.Subject.UID != other || !slices.Contains(rulesOf(in), "oom-kill") {
			t.Fatalf("%+v, %v", in, err)
		}
	}
	// The end of the old pod's probes may be detected later.
	over := names(uid)
	over.Kind, over.Probe.Over = event.ProbeRecovered, true
	n.after(time.Second, over)
	if in, err := n.read(why.Subject{Kind: why.KindPod, Namespace: "shop", Name: "web-1"}); err != nil || in.Subject.UID != other {
		t.Errorf("%+v, %v", in, err)
	}
}

// A disk error affects a pod if kubelet has mounted a volume on that disk for it.
func TestVolume(t *testing.T) {
	n := newNode(t)
	n.after(time.Second, &event.Event{
		Kind: event.DiskIO, Device: &event.Device{Name: "sdb", Mounts: []event.Mount{{Path: "/var/lib/kubelet/pods/" + uid + "/volumes/kubernetes.io~csi/data/mount", FSType: "ext4"}}},
		DiskIO: &event.DiskIOData{Op: "write", Bytes: 4096, Error: "EIO"},
	})
	n.after(0, names(uid))
	n.after(0, names(other))
	in, err := n.read(why.Subject{Kind: why.KindPod, Name: uid})
	if err != nil || !slices.Contains(rulesOf(in), "disk-io-error") {
		t.Errorf("%v, %v", rulesOf(in), err)
	}
	if in, err = n.read(why.Subject{Kind: why.KindPod, Name: other, UID: other}); err != nil || slices.Contains(rulesOf(in), "disk-io-error") {
		t.Errorf("%v, %v", rulesOf(in), err)
	}
}

func TestBlind(t *testing.T) {
	n := newNode(t)
	n.append(journal.Entry{Now: n.now.Wall, Boot: "b1"})
	n.after(time.Second, source("oomkill", false))
	n.after(0, source("diskio", true))
	n.after(0, &event.Event{Kind: event.Lost, Lost: &event.LostData{Stem: "diskio", Count: 3, Reason: "ring-full"}})
	n.after(0, source("hungtask", true))
	in, err := n.read(why.Subject{Kind: why.KindNode, Name: "n7"})
	if err != nil || len(in.Blind) != 2 || in.Blind[0].Source != "diskio" || in.Blind[1].Source != "oomkill" {
		t.Errorf("%+v, %v", in.Blind, err)
	}
	if a := why.Build(in); len(a.Blind) < 2 {
		t.Errorf("%+v", a)
	}
	// After a restart of the agent, the state of sources starts anew.
	n.append(journal.Entry{Now: n.now.Wall, Boot: "b1"})
	n.after(0, source("oomkill", true))
	if in, err = n.read(why.Subject{Kind: why.KindNode, Name: "n7"}); err != nil || len(in.Blind) != 0 {
		t.Errorf("%+v, %v", in.Blind, err)
	}
}

// A follower continues reading, and returns the new state.
func TestFollow(t *testing.T) {
	n := newNode(t)
	follower := local.Follow(local.Config{Dir: n.dir, Subject: why.Subject{Kind: why.KindNode, Name: "n7"}, Since: time.Minute})
	read := func() local.State {
		t.Helper()
		st, err := follower.Read(n.now.Wall, goOn)
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	n.append(journal.Entry{Now: n.now.Wall, Boot: "b1"})
	fallback := source("oomkill", true)
	fallback.SourceUp.Fallback = "context by a kprobe"
	n.after(time.Second, fallback)
	n.after(0, source("sockfail", false))
	n.after(0, source("service/kubelet", false))
	n.after(0, &event.Event{Kind: event.Source, SourceUp: &event.SourceData{Stem: "service/kubelet", Gone: true}})
	n.after(0, &event.Event{Kind: event.Check, Check: &event.CheckData{Check: "ntp", Status: event.CheckUnknown, Message: "no chronyc"}})
	lost := func(count uint64) {
		n.after(0, &event.Event{Kind: event.Lost, Lost: &event.LostData{Stem: "diskio", Count: count, Reason: "ring-full"}})
	}
	lost(3)
	st := read()
	var sources []string
	for _, s := range st.Sources {
		sources = append(sources, fmt.Sprint(s.Name, " ", s.Up, " ", s.Reason, s.Fallback))
	}
	want := []string{"check/ntp false no chronyc", "diskio true ", "oomkill true context by a kprobe", "sockfail false operation not permitted"}
	if !slices.Equal(sources, want) || len(st.Blind) != 2 || st.Started.IsZero() || slices.Contains(rulesOf(st.Input), "oom-kill") {
		t.Errorf("%q\n%+v", sources, st)
	}
	lost(4)
	n.after(time.Second, oom(uid))
	if st = read(); len(st.Losses) != 1 || st.Losses[0].Count != 7 || !slices.Contains(rulesOf(st.Input), "oom-kill") {
		t.Errorf("%+v", st)
	}
	// After a restart of the agent, losses are counted anew.
	n.after(10*time.Minute, nil)
	n.append(journal.Entry{Now: n.now.Wall, Boot: "b1"})
	if st = read(); len(st.Losses) != 0 || len(st.Sources) != 0 || slices.Contains(rulesOf(st.Input), "oom-kill") {
		t.Errorf("%+v", st)
	}
}

// A reboot ends all problems.
func TestBoot(t *testing.T) {
	n := newNode(t)
	n.append(journal.Entry{Now: n.now.Wall, Boot: "b1"})
	n.after(time.Second, oom(uid))
	n.append(journal.Entry{Now: n.now.Wall, Boot: "b2"})
	in, err := n.read(why.Subject{Kind: why.KindPod, Name: uid})
	if err != nil || len(in.Problems) == 0 || in.Problems[0].Lasts {
		t.Errorf("%+v, %v", in.Problems, err)
	}
}

func TestMuted(t *testing.T) {
	n := newNode(t)
	mutes := []problem.Mute{{Rule: "oom-kill", Until: n.now.Wall.Add(time.Hour), Reason: "a test of load"}}
	tr := n.engine.SetMutes(mutes, n.now)
	n.append(journal.Entry{Now: n.now.Wall, Mutes: &mutes, Transitions: tr})
	n.after(time.Second, oom(uid))
	in, err := n.read(why.Subject{Kind: why.KindPod, Name: uid})
	if err != nil || len(in.Problems) != 1 || in.Problems[0].MutedWhy != "a test of load" {
		t.Fatalf("%+v, %v", in.Problems, err)
	}
	if a := why.Build(in); a.Outcome != why.Found || !strings.Contains(a.Causes[0].Muted, "muted until 11:00:00: a test of load") {
		t.Errorf("%+v", a.Causes)
	}
}

func TestWhatIsNotThere(t *testing.T) {
	n := newNode(t)
	if _, err := n.read(why.Subject{Kind: why.KindNode, Name: "n7"}); err == nil {
		t.Error("an empty journal is read")
	}
	n.after(time.Second, source("oomkill", true))
	if in, err := n.read(why.Subject{Kind: why.KindPod, Namespace: "shop", Name: "web-1"}); !errors.Is(err, local.ErrUnknownPod) || len(in.Read) == 0 {
		t.Errorf("%+v, %v", in, err)
	}
	if _, err := local.Read(local.Config{Dir: n.dir + "-none"}, goOn); err == nil {
		t.Error("a journal that is not there is read")
	}
}
