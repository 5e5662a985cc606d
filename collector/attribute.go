package collector

import (
	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
)

// maxComm bounds a thread's name: the kernel keeps 15 bytes, and escaping makes some longer.
const maxComm = 64

// attribution resolves captured cgroup chains to owners. It must be used by one goroutine.
type attribution struct {
	attributor *hostfs.Attributor
	levels     [6]hostfs.Level
}

// chain resolves a chain from the given level up. It returns nil for an empty chain (the root).
func (a *attribution) chain(c *bpf.Chain, from int) *hostfs.Attributed {
	n := c.Levels() - from
	if n <= 0 || from < 0 {
		return nil
	}
	for i := range n {
		l := &a.levels[i]
		l.ID, l.Name = c.Level(from + i)
		l.Cut = len(l.Name) >= len(c.Name[0])-1 // the last byte is NUL
	}
	return a.attributor.Resolve(a.levels[0].ID, a.levels[:n], c.Truncated != 0)
}

// subject sets the event's cgroup and owner from a task's two chains. The default hierarchy's chain
// is preferred: with cgroup v2 the memory chain ends at the last level that has the memory
// controller. With v1 only the memory chain may contain a container.
func (a *attribution) subject(ev *event.Event, memory, dfl *bpf.Chain) {
	owner := a.chain(dfl, 0)
	if owner == nil || owner.Container == nil {
		if m := a.chain(memory, 0); m != nil && (owner == nil || m.Container != nil || owner.Unit == "") {
			owner = m
		}
	}
	a.set(ev, owner)
}

func (a *attribution) set(ev *event.Event, owner *hostfs.Attributed) {
	if owner == nil {
		return
	}
	ev.Cgroup, ev.Container, ev.Unit = &owner.Cgroup, owner.Container, owner.Unit
}

// texts caches the texts of recent keys, to avoid repeated allocations. It must be used by one
// goroutine.
type texts[K comparable] map[K]string

// of returns the text of a key. The cache is emptied when it has limit texts.
func (t *texts[K]) of(key K, limit int, text func() string) string {
	s, ok := (*t)[key]
	if !ok {
		s = text()
		if *t == nil {
			*t = map[K]string{}
		}
		put(*t, limit, key, s)
	}
	return s
}

// put stores a value in a map of at most limit entries: a full map is emptied first.
func put[K comparable, V any](m map[K]V, limit int, key K, value V) {
	if len(m) >= limit {
		clear(m)
	}
	m[key] = value
}

// names caches thread names.
type names struct {
	known texts[[16]byte]
	// The latest name, because the threads of a storm often have the same.
	latest     [16]byte
	latestText string
}

// maxNames bounds the memory of names: 1,000 names are about 50 KiB.
const maxNames = 1000

func (n *names) comm(raw [16]byte) string {
	if raw != n.latest {
		n.latestText = n.known.of(raw, maxNames, func() string { return display.Safe(string(bpf.CString(raw[:])), maxComm) })
		n.latest = raw
	}
	return n.latestText
}

// task converts a wire task into out.
func (n *names) task(out *event.Task, t *bpf.Task) {
	*out = event.Task{
		PID: t.PID, TGID: t.TGID, UID: t.UID,
		Comm: n.comm(t.Comm), StartTime: event.Duration(t.StartNS),
	}
}
