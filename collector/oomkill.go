package collector

import (
	"os"
	"slices"
	"time"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/collector/event"
)

// oomkill decodes OOM kills.
type oomkill struct {
	env *environment
	attribution
	names
	page uint64

	// What the event points to, used again for the next one.
	victim, trigger event.Task
	limit           event.Cgroup
	data            event.OOMKillData

	last oomLimit

	want oomWant

	killed [16]killedProcess // the latest, in a circle
	next   int
}

// killedProcess is a process that was killed, by the time of it.
type killedProcess struct {
	tgid   uint32
	bootNS uint64
}

// oomDyingFor is how long a killed process may take to end. It is far less than it
// takes for its number to be given again.
const oomDyingFor = uint64(10 * time.Second)

// oomWant is a thread's want of memory, and when the first process was killed for it.
type oomWant struct {
	trigger event.Task
	bootNS  uint64
}

// oomLimit is the limit that the latest kill was for.
type oomLimit struct {
	trigger event.Task
	bootNS  uint64
	cgroup  event.Cgroup
	limit   uint64 // bytes
	usage   uint64
}

// oomGroupWithin is how long the kernel may take to kill the processes of one
// group (memory.oom.group): 10,000 at 0.1 ms each.
const oomGroupWithin = uint64(time.Second)

func newOOMKill(env *environment) *oomkill {
	return &oomkill{env: env, attribution: attribution{attributor: env.attributor}, page: uint64(os.Getpagesize())}
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
		// 5.10 without a context program gives the pid alone; the process is
		// dying, but may still be there.
		if t, err := o.env.fs.Task(int(r.Victim.PID)); err == nil {
			o.victim = t
		}
	}
	if o.again(head, r) {
		return false, nil
	}
	ev.Task = &o.victim
	o.subject(ev, &r.Memory, &r.Default)

	o.data = event.OOMKillData{
		Scope:       o.scope(r),
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

// again tells whether the record is of a thread of a process that was killed before.
// Where such a thread wants memory on its way out, the kernel lets it have it by
// marking it a victim as well (task_will_free_mem in out_of_memory): nobody is killed,
// and memory.events counts nothing.
func (o *oomkill) again(head *bpf.Header, r *bpf.OOMKill) bool {
	if r.Trigger.PID == r.Victim.PID {
		for _, k := range o.killed {
			if k.tgid == o.victim.TGID && k.tgid != 0 && head.BootNS-k.bootNS < oomDyingFor {
				return true
			}
		}
	}
	o.killed[o.next] = killedProcess{o.victim.TGID, head.BootNS}
	o.next = (o.next + 1) % len(o.killed)
	return false
}

// along tells whether another process was killed just before for the same want.
func (o *oomkill) along(head *bpf.Header) bool {
	if o.want.trigger == o.trigger && head.BootNS-o.want.bootNS < oomGroupWithin {
		return true
	}
	o.want = oomWant{o.trigger, head.BootNS}
	return false
}

// setLimit sets whose limit was hit. With memory.oom.group a whole group is
// killed for one process' sake: when the later ones' turn comes, the first may
// have given back so much that no group is full any more. They have the limit
// of the first.
func (o *oomkill) setLimit(head *bpf.Header, r *bpf.OOMKill) {
	switch owner := o.chain(&r.Memory, int(r.LimitLevel)); {
	case r.Limit != bpf.OOMNoLimit:
		o.data.Limit, o.data.Usage = r.Limit*o.page, r.Usage*o.page
		if owner == nil {
			return
		}
		o.last = oomLimit{trigger: o.trigger, bootNS: head.BootNS, cgroup: owner.Cgroup, limit: o.data.Limit, usage: o.data.Usage}
	case o.last.trigger == o.trigger && head.BootNS-o.last.bootNS < oomGroupWithin && below(&r.Memory, o.last.cgroup.ID):
		o.data.Limit, o.data.Usage = o.last.limit, o.last.usage
	default:
		return
	}
	o.limit = o.last.cgroup
	o.data.LimitCgroup = &o.limit
}

// below tells whether a group is in the chain.
func below(c *bpf.Chain, id uint64) bool {
	return slices.Contains(c.ID[:c.Levels()], id)
}

// scope tells a control group's limit from the whole machine's memory: by the
// context program, else by the function on the stack that runs only for groups,
// else by whether a full group was found.
func (o *oomkill) scope(r *bpf.OOMKill) string {
	switch r.Scope {
	case bpf.OOMScopeMemcg:
		return "memcg"
	case bpf.OOMScopeGlobal:
		return "global"
	}
	code, stack := o.env.memcgOOM(), r.Stack[:min(int(r.StackDepth), len(r.Stack))]
	for _, f := range code {
		if slices.ContainsFunc(stack, f.ContainsReturn) {
			return "memcg"
		}
	}
	if len(code) > 0 && len(stack) > 0 {
		return "global"
	}
	if r.LimitLevel >= 0 {
		return "memcg"
	}
	return "unknown"
}
