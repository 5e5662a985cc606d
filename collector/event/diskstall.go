package event

import "github.com/kernosis/kernosis/collector/display"

const (
	// DiskStalled: a block device has I/O in flight and has completed none for at least the
	// threshold. A level signal that DiskResumed of the same device ends.
	DiskStalled Kind = "diskstall"
	// DiskResumed: a device reported by DiskStalled completes I/O, has none in flight, or is gone.
	DiskResumed Kind = "diskstall.resumed"
)

// DiskStallData is the payload of [DiskStalled] and [DiskResumed].
type DiskStallData struct {
	InFlight   uint32   `json:"inFlight"`   // I/Os, as of the latest look
	StalledFor Duration `json:"stalledFor"` // a lower bound: under-read by up to one interval of looks
}

func (d *DiskStallData) facts(ev *Event, f *Facts) {
	f.add("%d in flight, none completed for at least %s", d.InFlight, display.Duration(d.StalledFor))
	f.mounts(ev.Device)
}

func diskStallFields() []*Field {
	field := fieldsOf("event.", func(e *Event) *DiskStallData { return e.DiskStall }, DiskStalled, DiskResumed)
	return []*Field{
		field("inFlight", TypeInt, "I/Os waiting for the device", func(d *DiskStallData) Value { return number(d.InFlight) }),
		field("stalledFor", TypeDuration, "minimum time without a completed I/O",
			func(d *DiskStallData) Value { return duration(d.StalledFor) }),
	}
}
