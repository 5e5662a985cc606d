package bpf

import (
	"fmt"
	"structs"

	"github.com/cilium/ebpf"
)

// StemOOMKill: the kernel chose a process as the victim of an out-of-memory kill.
const StemOOMKill = "oomkill"

func oomkill() Stem {
	return Stem{
		Name:   StemOOMKill,
		object: _OomkillBytes,
		spec:   LoadOomkill,
		configure: func(spec *ebpf.CollectionSpec, k *Kernel) error {
			args, ok := k.TracepointArgs("mark_victim")
			if !ok {
				return fmt.Errorf("tracepoint mark_victim: not in BTF")
			}
			// int pid before v6.1 and its backports; task, uid since.
			return spec.Variables[OomkillVarMarkVictimHasTask].Set(len(args) > 1)
		},
		hooks: []hook{
			{name: "victim", variants: []variant{
				{program: OomkillProgVictimRaw, attach: rawTracepoint("mark_victim")},
			}},
			{name: "context", optional: true, variants: []variant{
				{program: OomkillProgContextFentry, attach: tracing()},
				{program: OomkillProgContextKp, attach: kprobe("oom_kill_process")},
			}},
		},
	}
}

// OOM scopes (enum kn_oom_scope).
const (
	OOMScopeMemcg  = 1
	OOMScopeGlobal = 2
)

// OOMNoLimit is the value of OOMKill.Limit when no limiting group was found.
const OOMNoLimit = ^uint64(0)

// OOMKill is struct kn_oomkill. Sizes are in pages unless noted.
type OOMKill struct {
	_              structs.HostLayout
	H              Header
	Victim         Task
	Trigger        Task
	TotalVM        uint64
	Anon           uint64
	File           uint64
	Shmem          uint64
	Swap           uint64
	PageTables     uint64 // bytes
	Limit          uint64 // of the limiting group, or OOMNoLimit
	Usage          uint64
	OOMScoreAdj    int16
	RSSApproximate uint8
	Scope          uint8
	VictimPartial  uint8 // only the victim's pid is known
	LimitLevel     int8  // index in Memory, or -1
	StackDepth     uint16
	Stack          [16]uint64
	Memory         Chain
	Default        Chain
}

// Frames returns the stack of the triggering task, innermost first.
func (k *OOMKill) Frames() []uint64 { return k.Stack[:min(int(k.StackDepth), len(k.Stack))] }
