package detector

import (
	"slices"
	"strconv"

	"github.com/kernosis/kernosis/collector/event"
)

// Fields returns every field, sorted by name. The slice is new, the Fields are shared.
func Fields() []*Field { return slices.Clone(fields) }

func fieldByName(name string) *Field { return fieldIndex[name] }

// fields and fieldIndex are constant tables.
//
//nolint:gochecknoglobals // immutable, and read for every field of every event
var (
	fields     = sortedFields()
	fieldIndex = func() map[string]*Field {
		m := make(map[string]*Field, len(fields))
		for _, f := range fields {
			m[f.Name] = f
		}
		return m
	}()
)

func sortedFields() []*Field {
	all := slices.Concat(commonFields(), subjectFields(), hungTaskFields(), oomKillFields(),
		diskFields(), connectionFields(), probeFields(), logFields(), checkFields(), gaugeFields(), sourceFields())
	for _, f := range all {
		slices.Sort(f.Kinds)
	}
	slices.SortFunc(all, func(a, b *Field) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return all
}

func kinds(k ...event.Kind) []event.Kind { return k }

func commonFields() []*Field {
	all := event.Kinds
	return []*Field{
		{Name: "event.kind", Type: String, Kinds: all(), few: true, Doc: "what happened",
			read: func(e *event.Event) value { return value{text: string(e.Kind)} }},
		{Name: "event.time", Type: Timestamp, Kinds: all(), Doc: "wall clock time of the fault",
			read: func(e *event.Event) value { return value{time: e.Time} }},
		{Name: "event.source", Type: String, Kinds: all(), few: true, Doc: "program or reader that saw it",
			read: func(e *event.Event) value { return text(e.Source) }},
		{Name: "inOwner", Type: String, Kinds: all(), Doc: "\" in \" and the owner, to follow a name in a message; empty where owner is",
			read: func(e *event.Event) value { return text(e.OwnerAfter(" in ")) }},
		{Name: "owner", Type: String, Kinds: all(), Doc: "whom the task or I/O belongs to: pod, container, unit or cgroup; empty: nothing but the root cgroup is known",
			read: func(e *event.Event) value { return text(e.Owner()) }},
		{Name: "subject", Type: String, Kinds: all(), Doc: "what it is about, most telling first: what is probed, pod or container, target, device, unit, cgroup, task, writer of a log, check, gauge",
			read: func(e *event.Event) value { return text(e.Subject()) }},
	}
}

func subjectFields() []*Field {
	tasks := func() []event.Kind {
		return kinds(event.HungTask, event.HungTaskResumed, event.OOMKill, event.DiskIO, event.FSError,
			event.SockFail, event.SockFailRecovered)
	}
	devices := func() []event.Kind {
		return kinds(event.DiskIO, event.DiskStalled, event.DiskResumed, event.FSError, event.MountReadOnly, event.MountWritable, event.Gauge)
	}
	conns := func() []event.Kind {
		return kinds(event.SockFail, event.SockFailRecovered, event.Probe, event.ProbeRecovered)
	}
	task := func(name string, t Type, doc string, read func(*event.Task) value) *Field {
		return &Field{Name: "task." + name, Type: t, Kinds: tasks(), Doc: doc, read: part(taskOf, read)}
	}
	cgroup := func(name string, t Type, doc string, read func(*event.Cgroup) value) *Field {
		return &Field{Name: "cgroup." + name, Type: t, Kinds: tasks(), Doc: doc,
			read: part(func(e *event.Event) *event.Cgroup { return e.Cgroup }, read)}
	}
	container := func(name string, few bool, doc string, read func(*event.Container) value) *Field {
		return &Field{Name: "container." + name, Type: String, Kinds: append(tasks(), event.Probe, event.ProbeRecovered), few: few, Doc: doc,
			read: part(func(e *event.Event) *event.Container { return e.Container }, read)}
	}
	pod := func(name, doc string, read func(*event.Container) value) *Field {
		f := container("", false, doc, read)
		f.Name = "pod." + name
		return f
	}
	device := func(name string, t Type, doc string, read func(*event.Device) value) *Field {
		return &Field{Name: "device." + name, Type: t, Kinds: devices(), Doc: doc,
			read: part(func(e *event.Event) *event.Device { return e.Device }, read)}
	}
	conn := func(name string, t Type, doc string, read func(*event.Conn) value) *Field {
		return &Field{Name: "conn." + name, Type: t, Kinds: conns(), Doc: doc,
			read: part(func(e *event.Event) *event.Conn { return e.Conn }, read)}
	}
	return []*Field{
		task("id", String, "thread and its start time, unique since boot",
			func(t *event.Task) value { return text(t.ID()) }),
		task("pid", Int, "thread id in the initial pid namespace", func(t *event.Task) value { return number(t.PID) }),
		task("tgid", Int, "process id in the initial pid namespace", func(t *event.Task) value { return number(t.TGID) }),
		task("comm", String, "the kernel's name of the thread, at most 15 bytes", func(t *event.Task) value { return text(t.Comm) }),
		task("uid", Int, "user id", func(t *event.Task) value { return number(t.UID) }),
		cgroup("id", Int, "64-bit kernfs id", func(c *event.Cgroup) value { return number(c.ID) }),
		cgroup("path", String, "path from the hierarchy's root", func(c *event.Cgroup) value { return text(c.Path) }),
		{Name: "cgroup.outsidePods", Type: String, Kinds: tasks(), Doc: "cgroup.path, and empty in a pod: there it is another one after each restart",
			read: func(e *event.Event) value {
				if e.Cgroup == nil || e.Container != nil && e.Container.PodUID != "" {
					return value{}
				}
				return text(e.Cgroup.Path)
			}},
		container("id", false, "full runtime id", func(c *event.Container) value { return text(c.ID) }),
		container("podUID", false, "UID of the pod", func(c *event.Container) value { return text(c.PodUID) }),
		container("name", false, "name in the pod, the same after a restart; empty where the runtime does not tell", func(c *event.Container) value { return text(c.Name) }),
		pod("name", "name of the pod; empty where neither the runtime's files nor the node's pods tell", func(c *event.Container) value { return text(c.PodName) }),
		pod("namespace", "namespace of the pod; empty where neither the runtime's files nor the node's pods tell", func(c *event.Container) value { return text(c.PodNamespace) }),
		podLabels(container("", false, "labels of the pod at the time of the event, the first 64 by name, of 4 KiB together; empty where the agent does not know the node's pods", nil)),
		container("runtime", true, "containerd, cri-o, docker, podman", func(c *event.Container) value { return text(c.Runtime) }),
		{Name: "unit", Type: String, Kinds: tasks(), Doc: "systemd unit, outside Kubernetes",
			read: func(e *event.Event) value { return text(e.Unit) }},
		device("name", String, "kernel name, such as nvme0n1p2", func(d *event.Device) value { return text(d.Name) }),
		device("major", Int, "major number", func(d *event.Device) value { return number(d.Major) }),
		device("minor", Int, "minor number", func(d *event.Device) value { return number(d.Minor) }),
		device("parent", String, "whole disk of a partition", func(d *event.Device) value { return text(d.Parent) }),
		device("mount", String, "first mount point", func(d *event.Device) value {
			if len(d.Mounts) == 0 {
				return value{}
			}
			return text(d.Mounts[0].Path)
		}),
		conn("src", String, "source address:port", func(c *event.Conn) value { return value{text: c.Src.String()} }),
		conn("dst", String, "destination address:port", func(c *event.Conn) value { return value{text: c.Dst.String()} }),
		conn("netns", Int, "inode of the opener's network namespace", func(c *event.Conn) value { return number(c.NetNS) }),
	}
}

func taskOf(e *event.Event) *event.Task { return e.Task }

// part makes a reader of a payload or subject that may be absent.
func part[T any](of func(*event.Event) *T, read func(*T) value) func(*event.Event) value {
	return func(e *event.Event) value {
		if p := of(e); p != nil {
			return read(p)
		}
		return value{}
	}
}

func taskText(t *event.Task) string {
	if t == nil {
		return ""
	}
	return t.String()
}

// address is the text of a kernel address: an identity, not a number to
// reckon with. No address is the empty text.
func address(a uint64) value {
	if a == 0 {
		return value{}
	}
	return value{text: "0x" + strconv.FormatUint(a, 16)}
}
