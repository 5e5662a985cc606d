package event

import "math/bits"

// Gauge: how much of a resource of the node is in use, read at a fixed interval. Every reading is
// an event, not only faults; rules decide how much is a problem.
const Gauge Kind = "gauge"

// GaugeData is the payload of [Gauge]. Units and limit depend on the gauge, see the Gauge
// constants. For gauges of a filesystem, the event's Device is that filesystem.
type GaugeData struct {
	Name  string `json:"name"`
	Value uint64 `json:"value"`
	Limit uint64 `json:"limit,omitempty"` // in the unit of Value; 0: there is none
	// Gone: there is nothing to read any more, as the filesystem was unmounted. The
	// gauge's problems end with it; Value and Limit are 0.
	Gone bool `json:"gone,omitempty"`
}

// The gauges, whose names are API. All grow towards the fault: they measure use, not what is free.
const (
	// GaugeMemory: bytes that the kernel can't make available without swapping (MemTotal minus
	// MemAvailable); limit: MemTotal.
	GaugeMemory = "memory"
	// GaugeFiles: open files of all processes; limit: fs.file-max.
	GaugeFiles = "files"
	// GaugePIDs: threads, as each takes a PID; limit: the lower of kernel.pid_max and threads-max.
	GaugePIDs = "pids"
	// GaugeSpace: used bytes of a filesystem; limit: those available to users other than root.
	GaugeSpace = "space"
	// GaugeInodes: used inodes of a filesystem.
	GaugeInodes = "inodes"
	// GaugeClockError: µs that the clock may be wrong by, as the kernel estimates (maxerror of
	// adjtimex); limit: the 16 s at which the kernel calls it unsynchronised.
	GaugeClockError = "clock-error"
	// GaugeClockOffset: µs that the clock was off at the latest measurement and that are still to
	// be slewed (offset of adjtimex), without sign. No limit.
	GaugeClockOffset = "clock-offset"
)

// Gauges returns the names of all gauges, sorted.
func Gauges() []string {
	return []string{GaugeClockError, GaugeClockOffset, GaugeFiles, GaugeInodes, GaugeMemory, GaugePIDs, GaugeSpace}
}

// Percent returns Value as a percentage of Limit, rounded down; 0 without a limit.
func (g *GaugeData) Percent() uint64 {
	if g.Limit == 0 {
		return 0
	}
	hi, lo := bits.Mul64(g.Value, 100)
	if hi >= g.Limit {
		return ^uint64(0)
	}
	percent, _ := bits.Div64(hi, lo, g.Limit)
	return percent
}

func (d *GaugeData) facts(ev *Event, f *Facts) {
	f.add("%s: %d of %d", d.Name, d.Value, d.Limit)
	f.mounts(ev.Device)
}

func gaugeFields() []*Field {
	gauge := fieldsOf("gauge.", func(e *Event) *GaugeData { return e.Gauge }, Gauge)
	return []*Field{
		few(gauge("name", TypeString, "[which gauge](#thresholds-on-the-nodes-resources-gauge)", func(g *GaugeData) Value { return text(g.Name) })),
		gauge("value", TypeInt, "bytes of memory and space, µs of the clock, else a number", func(g *GaugeData) Value { return number(g.Value) }),
		gauge("limit", TypeInt, "maximum, in the same unit; 0: none", func(g *GaugeData) Value { return number(g.Limit) }),
		gauge("percent", TypeInt, "gauge.value in percent of gauge.limit, rounded down; 0 without a limit", func(g *GaugeData) Value { return number(g.Percent()) }),
	}
}
