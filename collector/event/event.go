package event

import (
	"maps"
	"reflect"
	"slices"
	"time"
)

// NoCPU is the CPU of events that do not come from a kernel record.
const NoCPU = ^uint32(0)

// Event is one fact. Exactly one payload is set, the one for its Kind. Unknown subjects are nil.
type Event struct {
	Kind     Kind      `json:"kind"`
	Time     time.Time `json:"time"`             // wall clock
	BootTime Duration  `json:"bootTime"`         // since boot, suspend included; the kernel's own stamp
	CPU      uint32    `json:"cpu"`              // with Kind and BootTime the identity of a kernel record; NoCPU: not one
	Source   string    `json:"source,omitempty"` // which program or reader saw it: "bpf/mark_victim_raw"
	// Times is how many events this one represents, itself the latest of them; 0: only itself.
	Times uint64 `json:"times,omitempty"`

	Task      *Task      `json:"task,omitempty"`
	Cgroup    *Cgroup    `json:"cgroup,omitempty"`
	Container *Container `json:"container,omitempty"`
	// PodLabels are the labels of the container's pod at the time of the event, bounded by
	// [SafeLabels]; nil if no rule reads them, or if pods are unknown.
	PodLabels map[string]string `json:"podLabels,omitempty"`
	Unit      string            `json:"unit,omitempty"` // systemd unit outside Kubernetes
	Device    *Device           `json:"device,omitempty"`
	Conn      *Conn             `json:"conn,omitempty"`

	HungTask  *HungTaskData  `json:"hungTask,omitempty"`
	OOMKill   *OOMKillData   `json:"oomKill,omitempty"`
	DiskIO    *DiskIOData    `json:"diskIO,omitempty"`
	DiskStall *DiskStallData `json:"diskStall,omitempty"`
	FSError   *FSErrorData   `json:"fsError,omitempty"`
	HWError   *HWErrorData   `json:"hwError,omitempty"`
	Mount     *MountData     `json:"mount,omitempty"`
	SockFail  *SockFailData  `json:"sockFail,omitempty"`
	Probe     *ProbeData     `json:"probe,omitempty"`
	Log       *LogData       `json:"log,omitempty"`
	Check     *CheckData     `json:"check,omitempty"`
	Gauge     *GaugeData     `json:"gauge,omitempty"`
	Lost      *LostData      `json:"lost,omitempty"`
	SourceUp  *SourceData    `json:"sourceUp,omitempty"`
	CanaryRun *CanaryData    `json:"canaryRun,omitempty"`
}

// payload is the part of an event that belongs to its kind.
type payload interface {
	facts(ev *Event, f *Facts)
}

// payload returns the payload that is set, or nil if none is.
func (e *Event) payload() payload {
	for _, p := range []payload{
		e.HungTask, e.OOMKill, e.DiskIO, e.DiskStall, e.FSError, e.HWError, e.Mount, e.SockFail, e.Probe, e.Log, e.Check,
		e.Gauge, e.Lost, e.SourceUp, e.CanaryRun,
	} {
		if !reflect.ValueOf(p).IsNil() {
			return p
		}
	}
	return nil
}

// Occurrences returns how many events it represents.
func (e *Event) Occurrences() uint64 { return max(e.Times, 1) }

// Clone returns a deep copy that shares no memory the original's owner reuses.
func (e *Event) Clone() *Event {
	c := *e
	c.Task = clone(e.Task)
	c.Cgroup = clone(e.Cgroup)
	c.Container = clone(e.Container)
	c.PodLabels = maps.Clone(e.PodLabels)
	c.Device = clone(e.Device)
	if c.Device != nil {
		c.Device.Mounts = slices.Clone(e.Device.Mounts)
	}
	c.Conn = clone(e.Conn)

	c.HungTask = clone(e.HungTask)
	if d := c.HungTask; d != nil {
		d.Holder, d.Stack = clone(d.Holder), slices.Clone(d.Stack)
	}
	c.OOMKill = clone(e.OOMKill)
	if d := c.OOMKill; d != nil {
		d.LimitCgroup, d.Trigger = clone(d.LimitCgroup), clone(d.Trigger)
	}
	c.DiskIO = clone(e.DiskIO)
	c.DiskStall = clone(e.DiskStall)
	c.FSError = clone(e.FSError)
	c.HWError = clone(e.HWError)
	c.Mount = clone(e.Mount)
	c.SockFail = clone(e.SockFail)
	if d := c.SockFail; d != nil {
		d.Evidence, d.Excluded = slices.Clone(d.Evidence), slices.Clone(d.Excluded)
	}
	c.Probe = clone(e.Probe)
	if d := c.Probe; d != nil {
		d.Evidence, d.Excluded = slices.Clone(d.Evidence), slices.Clone(d.Excluded)
	}
	c.Log = clone(e.Log)
	if d := c.Log; d != nil {
		d.Captures = maps.Clone(d.Captures)
	}
	c.Check = clone(e.Check)
	c.Gauge = clone(e.Gauge)
	c.Lost = clone(e.Lost)
	c.SourceUp = clone(e.SourceUp)
	c.CanaryRun = clone(e.CanaryRun)
	return &c
}

func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

// Owner returns the owner of the task or I/O: pod, container, systemd unit or cgroup. It returns ""
// if only the root cgroup is known.
func (e *Event) Owner() string { return e.OwnerAfter("") }

// OwnerAfter returns Owner after a prefix, in one allocation, or "" if Owner is empty.
func (e *Event) OwnerAfter(prefix string) string {
	switch {
	case e.Container != nil && e.Container.ID == "": // the pod's own cgroup
		return prefix + "pod " + e.Container.PodUID
	case e.Container != nil && e.Container.PodUID != "":
		return prefix + "pod " + e.Container.PodUID + " container " + short(e.Container.ID)
	case e.Container != nil:
		return prefix + "container " + short(e.Container.ID)
	case e.Unit != "":
		return prefix + "unit " + e.Unit
	case e.Cgroup != nil && e.Cgroup.Path != "" && e.Cgroup.Path != "/":
		return prefix + "cgroup " + e.Cgroup.Path
	}
	return ""
}

// Subject names what the event is about in the terms of an operator, the most specific first:
// probed object, pod or container, connection target, device or hardware, systemd unit, cgroup,
// task, writer of a log, check, gauge. It returns "" if the event has none of them.
func (e *Event) Subject() string {
	switch {
	case e.Probe != nil:
		return e.Probe.Name
	case e.Container != nil:
		return e.Owner()
	case e.SockFail != nil:
		return e.SockFail.Target
	case e.HWError != nil:
		return e.HWError.subject()
	case e.Device != nil && len(e.Device.Mounts) > 0:
		return e.Device.Name + " at " + e.Device.Mounts[0].Path
	case e.Device != nil:
		return e.Device.Name
	}
	switch owner := e.Owner(); {
	case owner != "":
		return owner
	case e.Task != nil:
		return e.Task.String()
	case e.Log != nil:
		return e.Log.writer()
	case e.Check != nil:
		return e.Check.Check
	case e.Gauge != nil:
		return e.Gauge.Name
	}
	return ""
}

// short cuts a container id to the 12 digits that container tools print.
func short(id string) string {
	if len(id) > 12 {
		return id[:12]
	}
	return id
}
