package event

// Kinds about the agent itself.
const (
	// Lost: records of one stem were lost, with the count and the reason.
	Lost Kind = "lost"
	// Source: a source started or stopped detecting its faults.
	Source Kind = "source"
	// Canary: a test record that checks the path from kernel to engine.
	Canary Kind = "canary"
)

// LostSuppressed is the reason of [LostData] for messages of services that journald dropped. It never
// drops the kernel's: its limit is per unit (manager_dispatch_message, src/journal/journald-manager.c).
const LostSuppressed = "suppressed"

// LostData is the payload of [Lost].
type LostData struct {
	Stem   string `json:"stem"`
	Count  uint64 `json:"count"`  // 0: unknown, and possibly none
	Reason string `json:"reason"` // ring-full, recursion, malformed, foreign-wire, too-many; of a log, see logs.Reason, or rate-limit
}

func (d *LostData) facts(_ *Event, f *Facts) {
	f.Verdict = d.Reason
	f.add("%d records of %s", d.Count, d.Stem)
}

// SourceData is the payload of [Source].
type SourceData struct {
	Stem string `json:"stem"`
	// Kernel: a log that has the kernel's lines, see KernelLogs.
	Kernel bool   `json:"kernel,omitempty"`
	Up     bool   `json:"up"`
	Reason string `json:"reason,omitempty"`
	// Fallback lists the parts that are served by a fallback, and why; empty: none.
	Fallback string `json:"fallback,omitempty"`
	// Gone: the source no longer exists, such as a service that is no longer probed; Up is false.
	Gone bool `json:"gone,omitempty"`
}

func (d *SourceData) facts(*Event, *Facts) {}

// CanaryData is the payload of [Canary].
type CanaryData struct {
	Stem  string `json:"stem"`
	Nonce uint64 `json:"nonce"`
}

func (d *CanaryData) facts(*Event, *Facts) {}

// sourceFields returns the fields of all three kinds.
func sourceFields() []*Field {
	lost := fieldsOf("event.", func(e *Event) *LostData { return e.Lost }, Lost)
	source := fieldsOf("event.", func(e *Event) *SourceData { return e.SourceUp }, Source)
	return []*Field{
		{Name: "event.stem", Type: TypeString, Kinds: []Kind{Lost, Source, Canary}, Few: true, Doc: "affected source: oomkill, log/kmsg",
			Read: func(e *Event) Value {
				switch {
				case e.Lost != nil:
					return text(e.Lost.Stem)
				case e.SourceUp != nil:
					return text(e.SourceUp.Stem)
				case e.CanaryRun != nil:
					return text(e.CanaryRun.Stem)
				}
				return Value{}
			}},
		lost("count", TypeInt, "records or lines lost; 0: unknown, possibly none",
			func(l *LostData) Value { return number(l.Count) }),
		source("up", TypeBool, "the source works", func(s *SourceData) Value { return boolean(s.Up) }),
	}
}
