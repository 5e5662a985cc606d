package event

import (
	"strings"

	"github.com/kernosis/kernosis/collector/display"
)

const (
	// HungTask: a task has been in uninterruptible sleep, without being switched in once, for at
	// least the threshold. A level signal that HungTaskResumed of the same task ends.
	HungTask Kind = "hungtask"
	// HungTaskResumed: a task reported by HungTask runs again or has exited.
	HungTaskResumed Kind = "hungtask.resumed"
)

// HungTaskData is the payload of [HungTask] and [HungTaskResumed].
type HungTaskData struct {
	BlockedFor Duration `json:"blockedFor"`           // a lower bound: under-read by up to one check interval
	Wait       string   `json:"wait"`                 // io, lock, command (discard, erase, SG_IO: may take long when all is well), process (vfork, exec: another process or thread) or other
	Lock       string   `json:"lock,omitempty"`       // mutex, semaphore, rwsem-read, rwsem-write; empty: not a recorded lock
	LockAddr   uint64   `json:"lockAddr,omitempty"`   // identity of the lock, to report that several tasks hang on one
	Holder     *Task    `json:"holder,omitempty"`     // who holds the lock
	HolderHint bool     `json:"holderHint,omitempty"` // the kernel keeps only a hint: "possibly"
	Stack      []string `json:"stack,omitempty"`      // innermost first, "symbol+0x1f"
	Detector   string   `json:"detector"`             // khungtaskd or poll
	Exited     bool     `json:"exited,omitempty"`     // HungTaskResumed only: the task is gone
}

func (d *HungTaskData) facts(ev *Event, f *Facts) {
	f.Verdict = d.Wait
	waits := "waits for " + d.Wait
	switch {
	case d.Wait == "io":
		waits = "waits for I/O"
	case d.Lock != "":
		waits = "waits for a " + d.Lock
	case d.Wait == "process":
		waits = "waits for another process or thread"
	case d.Wait == "other" || d.Wait == "":
		waits = "what it waits for is not recorded"
	}
	f.add("not run for at least %s, %s", display.Duration(d.BlockedFor), waits)
	if h := d.Holder; h != nil {
		possibly := ""
		if d.HolderHint {
			possibly = "possibly "
		}
		f.add("lock held %sby %s", possibly, h)
	}
	if len(d.Stack) > 0 {
		f.add("stack: %s", strings.Join(d.Stack[:min(len(d.Stack), maxFrames)], " ← "))
	}
}

func hungTaskFields() []*Field {
	field := fieldsOf("event.", func(e *Event) *HungTaskData { return e.HungTask }, HungTask, HungTaskResumed)
	return []*Field{
		field("blockedFor", TypeDuration, "minimum time blocked", func(h *HungTaskData) Value { return duration(h.BlockedFor) }),
		few(field("wait", TypeString, "io, lock, command (discard, erase, SG_IO: may be slow without a fault), process (vfork, exec: another process or thread) or other", func(h *HungTaskData) Value { return text(h.Wait) })),
		few(field("lock", TypeString, "mutex, semaphore, rwsem-read, rwsem-write", func(h *HungTaskData) Value { return text(h.Lock) })),
		field("lockAddr", TypeString, "identity of the lock", func(h *HungTaskData) Value { return address(h.LockAddr) }),
		field("holder", TypeOptionalString, `lock holder, "comm[pid]", after "possibly " if uncertain`, func(h *HungTaskData) Value {
			s := h.Holder.String()
			if s != "" && h.HolderHint {
				s = "possibly " + s
			}
			return optional(s)
		}),
		few(field("detector", TypeString, "khungtaskd or poll", func(h *HungTaskData) Value { return text(h.Detector) })),
		field("exited", TypeBool, "hungtask.resumed: the task has exited", func(h *HungTaskData) Value { return boolean(h.Exited) }),
	}
}
