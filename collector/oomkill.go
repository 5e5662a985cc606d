package collector

import (
	"os"
	"slices"
	"strings"
	"time"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
)

// oomkill decodes OOM kills.
type oomkill struct {
	env *environment
	attribution
	names
	page uint64

	// The event points to these; they are reused for the next event.
	victim, trigger event.Task
	limit           event.Cgroup
	data            event.OOMKillData

	last   oomLimit
	latest oomStack

	want oomWant

	// killed is the CLOCK_BOOTTIME of kills by process, used if oomCode is not known.
	killed map[uint32]uint64
}

// oomCode has ranges of kernel code. Whether a victim's stack contains them shows the kind of kill.
// Each is empty if its address is not known (kernel.kptr_restrict=2).
type oomCode struct {
	memcg []hostfs.Range // a cgroup hit its limit; if absent, the whole machine was out of memory
	kill  []hostfs.Range // the victim is killed; if absent, the victim was dying already
}

func findOOMCode(fs hostfs.FS) (code oomCode, err error) {
	const memcg, kill = "mem_cgroup_out_of_memory", "__oom_kill_process"
	ranges, err := fs.Ranges(memcg, kill)
	for name, r := range ranges {
		if strings.HasPrefix(name, memcg) {
			code.memcg = append(code.memcg, r)
		} else {
			code.kill = append(code.kill, r)
		}
	}
	return code, err
}

// oomStack is a stack, and whether it has the functions of oomCode. The kills of a storm share few
// stacks, so the latest is kept.
type oomStack struct {
	addresses   [16]uint64
	depth       uint16
	memcg, kill presence
}

// presence is whether one of several functions is on a stack.
type presence uint8

const (
	presenceUnknown presence = iota // the stack or the functions' addresses are not known
	notOnStack
	onStack
)

// Used if the code is not known: how long a killed process may take to exit (far less than until its
// PID is reused), and the maximum number of kills kept.
const (
	oomDyingFor  = uint64(10 * time.Second)
	maxOOMKilled = 4096
)

// oomWant is a thread's unmet demand for memory, and when the first process was killed for it.
type oomWant struct {
	trigger event.Task
	bootNS  uint64
}

// covers reports whether a kill belongs to the same demand.
func (w *oomWant) covers(trigger event.Task, bootNS uint64) bool {
	return w.trigger == trigger && bootNS-w.bootNS < oomGroupWithin
}

// oomLimit is the limit that caused the latest kill.
type oomLimit struct {
	oomWant
	cgroup event.Cgroup
	limit  uint64 // bytes
	usage  uint64
}

// oomGroupWithin is how long the kernel may take to kill the processes of one cgroup
// (memory.oom.group): 10,000 at 0.1 ms each.
const oomGroupWithin = uint64(time.Second)

func newOOMKill(env *environment) *oomkill {
	return &oomkill{
		env: env, attribution: attribution{attributor: env.attributor}, page: uint64(os.Getpagesize()),
		killed: map[uint32]uint64{},
	}
}

func (o *oomkill) decode(head *bpf.Header, raw []byte, ev *event.Event) (bool, error) {
	r, err := bpf.View[bpf.OOMKill](raw)
	if err != nil {
		return false, err
	}
	ev.Kind = event.OOMKill
	o.names.task(&o.victim, &r.Victim)
	o.names.task(&o.trigger, &r.Trigger)
	if r.VictimPartial != 0 {
		// On 5.10 without a context program, the record has only the pid; the dying process may still
		// exist. If the record was left by an earlier run, another process may have the pid.
		if t, err := o.env.fs.Task(int(r.Victim.PID)); err == nil && t.StartTime <= event.Duration(head.BootNS) {
			o.victim = t
		}
	}
	if !o.isKilled(head, r) {
		return false, nil
	}
	ev.Task = &o.victim
	scope := o.scope(r)
	// If the victim has no record of its own, the cgroups are the trigger's. Both belong to the same
	// owner only at a cgroup's limit.
	if r.VictimPartial == 0 || scope == "memcg" {
		o.subject(ev, &r.Memory, &r.Default)
	}

	o.data = event.OOMKillData{
		Scope:       scope,
		Trigger:     &o.trigger,
		TotalVM:     r.TotalVM * o.page,
		AnonRSS:     r.Anon * o.page,
		FileRSS:     r.File * o.page,
		ShmemRSS:    r.Shmem * o.page,
		Swap:        r.Swap * o.page,
		PageTables:  r.PageTables,
		Approximate: r.RSSApproximate != 0,
		OOMScoreAdj: r.OOMScoreAdj,
	}
	if o.data.Scope == "memcg" {
		o.data.Along = o.along(head)
		o.setLimit(head, r)
	}
	ev.OOMKill = &o.data
	return true, nil
}

// isKilled reports whether the victim is killed. The kernel also marks a process that is already
// dying as a victim, to let it have the memory that it needs to exit (task_will_free_mem in
// out_of_memory and oom_kill_process): nothing is killed then, and memory.events counts nothing.
func (o *oomkill) isKilled(head *bpf.Header, r *bpf.OOMKill) bool {
	if s := o.stack(r); s.kill != presenceUnknown {
		return s.kill == onStack
	}
	// Without the code ranges only one case can be recognized: a thread of a process that was killed
	// before.
	if at, ok := o.killed[o.victim.TGID]; ok && r.Trigger.PID == r.Victim.PID && head.BootNS-at < oomDyingFor {
		return false
	}
	put(o.killed, maxOOMKilled, o.victim.TGID, head.BootNS)
	return true
}

// stack returns what the record's stack means.
func (o *oomkill) stack(r *bpf.OOMKill) *oomStack {
	if s := &o.latest; s.depth != r.StackDepth || s.addresses != r.Stack {
		code, frames := o.env.oomCode(), r.Frames()
		*s = oomStack{addresses: r.Stack, depth: r.StackDepth, memcg: findOnStack(frames, code.memcg), kill: findOnStack(frames, code.kill)}
	}
	return &o.latest
}

// findOnStack looks for one of several functions.
func findOnStack(stack []uint64, code []hostfs.Range) presence {
	if len(stack) == 0 || len(code) == 0 {
		return presenceUnknown
	}
	for _, f := range code {
		// A return address may be right after the range.
		if slices.ContainsFunc(stack, func(address uint64) bool { return f.Contains(address - 1) }) {
			return onStack
		}
	}
	return notOnStack
}

// along reports whether another process was killed for the same demand just before.
func (o *oomkill) along(head *bpf.Header) bool {
	if o.want.covers(o.trigger, head.BootNS) {
		return true
	}
	o.want = oomWant{o.trigger, head.BootNS}
	return false
}

// setLimit sets the cgroup whose limit was hit. With memory.oom.group the kernel kills a whole
// cgroup because of one process. When it kills the later processes, the first may have freed so
// much that no cgroup is full any more. They get the limit of the first.
func (o *oomkill) setLimit(head *bpf.Header, r *bpf.OOMKill) {
	switch owner := o.chain(&r.Memory, int(r.LimitLevel)); {
	case r.Limit != bpf.OOMNoLimit:
		o.data.Limit, o.data.Usage = r.Limit*o.page, r.Usage*o.page
		if owner == nil {
			return
		}
		o.last = oomLimit{oomWant{o.trigger, head.BootNS}, owner.Cgroup, o.data.Limit, o.data.Usage}
	case o.last.covers(o.trigger, head.BootNS) && slices.Contains(r.Memory.ID[:r.Memory.Levels()], o.last.cgroup.ID):
		o.data.Limit, o.data.Usage = o.last.limit, o.last.usage
	default:
		return
	}
	o.limit = o.last.cgroup
	o.data.LimitCgroup = &o.limit
}

// scope distinguishes a kill at a cgroup's limit from a kill because the machine is out of memory. It
// uses the context program, or else the presence of the function on the stack that runs only for
// cgroups, or else whether a full cgroup was found.
func (o *oomkill) scope(r *bpf.OOMKill) string {
	switch r.Scope {
	case bpf.OOMScopeMemcg:
		return "memcg"
	case bpf.OOMScopeGlobal:
		return "global"
	}
	switch o.stack(r).memcg {
	case onStack:
		return "memcg"
	case notOnStack:
		return "global"
	case presenceUnknown:
	}
	if r.LimitLevel >= 0 {
		return "memcg"
	}
	return "unknown"
}
