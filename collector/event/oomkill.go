package event

import "github.com/kernosis/kernosis/collector/display"

// OOMKill: the kernel chose a process as the victim of an out-of-memory kill.
const OOMKill Kind = "oomkill"

// OOMKillData is the payload of [OOMKill]; the event's Task is the victim. Sizes are bytes.
type OOMKillData struct {
	Scope       string  `json:"scope"`                 // memcg, global or unknown
	LimitCgroup *Cgroup `json:"limitCgroup,omitempty"` // memcg: whose limit was hit
	Limit       uint64  `json:"limit,omitempty"`       // of LimitCgroup
	Usage       uint64  `json:"usage,omitempty"`       // of LimitCgroup at the kill
	Trigger     *Task   `json:"trigger,omitempty"`     // the task whose allocation failed
	TotalVM     uint64  `json:"totalVM"`
	AnonRSS     uint64  `json:"anonRSS"`
	FileRSS     uint64  `json:"fileRSS"`
	ShmemRSS    uint64  `json:"shmemRSS"`
	Swap        uint64  `json:"swap"`
	PageTables  uint64  `json:"pageTables"`
	Approximate bool    `json:"approximate,omitempty"` // the RSS figures miss per-CPU remainders
	OOMScoreAdj int16   `json:"oomScoreAdj"`
	Along       bool    `json:"along,omitempty"` // killed after another process for the same failed allocation: memory.oom.group
}

func (d *OOMKillData) facts(ev *Event, f *Facts) {
	f.Verdict = d.Scope
	switch d.Scope {
	case "memcg":
		where := "its cgroup"
		if g := d.LimitCgroup; g != nil && (ev.Cgroup == nil || g.Path != ev.Cgroup.Path) {
			where = g.Path
		}
		if d.Limit > 0 {
			f.add("%s used of the %s limit of %s", display.Bytes(d.Usage), display.Bytes(d.Limit), where)
		}
		f.not("node out of memory (a cgroup's limit was hit)")
	case "global":
		f.not("a cgroup's limit (the whole node had no memory left)")
	}
	about := ""
	if d.Approximate {
		about = "about "
	}
	killed := "killed"
	if ev.Task != nil {
		killed = ev.Task.String() + " killed"
	}
	f.add("%s: anonymous %s%s, file %s, shared %s, swap %s, page tables %s", killed, about, display.Bytes(d.AnonRSS), display.Bytes(d.FileRSS), display.Bytes(d.ShmemRSS), display.Bytes(d.Swap), display.Bytes(d.PageTables))
	if d.Trigger != nil {
		f.add("triggered by %s", d.Trigger)
	}
	f.add("oom_score_adj %d", d.OOMScoreAdj)
}

func oomKillFields() []*Field {
	field := fieldsOf("event.", func(e *Event) *OOMKillData { return e.OOMKill }, OOMKill)
	size := func(name, doc string, read func(*OOMKillData) uint64) *Field {
		return field(name, TypeInt, doc, func(o *OOMKillData) Value { return number(read(o)) })
	}
	return []*Field{
		few(field("scope", TypeString, "memcg, global or unknown", func(o *OOMKillData) Value { return text(o.Scope) })),
		field("limitCgroup", TypeString, "path of the cgroup whose limit was hit", func(o *OOMKillData) Value {
			if o.LimitCgroup == nil {
				return Value{}
			}
			return text(o.LimitCgroup.Path)
		}),
		size("limit", "memory limit of limitCgroup", func(o *OOMKillData) uint64 { return o.Limit }),
		size("usage", "memory use of limitCgroup at the kill", func(o *OOMKillData) uint64 { return o.Usage }),
		field("trigger", TypeString, `task whose allocation failed, "comm[pid]"`, func(o *OOMKillData) Value { return text(o.Trigger.String()) }),
		size("totalVM", "the victim's address space", func(o *OOMKillData) uint64 { return o.TotalVM }),
		size("anonRSS", "the victim's anonymous memory", func(o *OOMKillData) uint64 { return o.AnonRSS }),
		size("fileRSS", "the victim's mapped file memory", func(o *OOMKillData) uint64 { return o.FileRSS }),
		size("shmemRSS", "the victim's shared memory", func(o *OOMKillData) uint64 { return o.ShmemRSS }),
		size("swap", "the victim's swapped memory", func(o *OOMKillData) uint64 { return o.Swap }),
		size("pageTables", "the victim's page tables", func(o *OOMKillData) uint64 { return o.PageTables }),
		field("approximate", TypeBool, "the RSS figures lack per-CPU remainders", func(o *OOMKillData) Value { return boolean(o.Approximate) }),
		field("along", TypeBool, "killed together with another process (memory.oom.group)", func(o *OOMKillData) Value { return boolean(o.Along) }),
		field("oomScoreAdj", TypeInt, "the victim's oom_score_adj", func(o *OOMKillData) Value { return number(o.OOMScoreAdj) }),
	}
}
