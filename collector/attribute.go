package collector

import (
	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
)

// maxComm bounds a thread's name: the kernel keeps 15 bytes, but escaping hostile ones makes them
// longer.
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

// names caches the Go strings of recent thread names, so that a repeated one is not allocated
// again. It must be used by one goroutine.
type names struct {
	known map[[16]byte]string
}

// maxNames bounds the memory of names: 1,000 names are about 50 KiB.
const maxNames = 1000

func (n *names) comm(raw [16]byte) string {
	if s, ok := n.known[raw]; ok {
		return s
	}
	if n.known == nil || len(n.known) >= maxNames {
		n.known = make(map[[16]byte]string)
	}
	s := display.Safe(string(bpf.CString(raw[:])), maxComm)
	n.known[raw] = s
	return s
}

// task converts a wire task into out.
func (n *names) task(out *event.Task, t *bpf.Task) {
	*out = event.Task{
		PID: t.PID, TGID: t.TGID, UID: t.UID,
		Comm: n.comm(t.Comm), StartTime: event.Duration(t.StartNS),
	}
}
