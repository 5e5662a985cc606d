package event

import (
	"cmp"
	"slices"
	"strconv"
)

// Fields returns every field, sorted by name. The slice is new, the Fields are shared.
func Fields() []*Field { return slices.Clone(fields) }

// FieldByName returns a field, or nil if no field has that name.
func FieldByName(name string) *Field { return fieldIndex[name] }

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
	all := slices.Concat(commonFields(), subjectFields(), connectionFields(), sharedFields())
	for _, f := range Families() {
		if f.fields != nil {
			all = append(all, f.fields()...)
		}
	}
	for _, f := range all {
		slices.Sort(f.Kinds)
	}
	slices.SortFunc(all, func(a, b *Field) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

func commonFields() []*Field {
	all := Kinds
	return []*Field{
		{Name: "event.kind", Type: TypeString, Kinds: all(), Few: true, Doc: "kind of the event",
			Read: func(e *Event) Value { return Value{Text: string(e.Kind)} }},
		{Name: "event.time", Type: TypeTimestamp, Kinds: all(), Doc: "wall clock time of the fault",
			Read: func(e *Event) Value { return Value{Time: e.Time} }},
		{Name: "event.source", Type: TypeString, Kinds: all(), Few: true, Doc: "program or reader that detected it",
			Read: func(e *Event) Value { return text(e.Source) }},
		{Name: "inOwner", Type: TypeString, Kinds: all(), Doc: "\" in \" and owner, for messages; empty if owner is",
			Read: func(e *Event) Value { return text(e.OwnerAfter(" in ")) }},
		{Name: "owner", Type: TypeString, Kinds: all(), Doc: "pod, container, unit or cgroup of the task or I/O; empty: only the root cgroup is known",
			Read: func(e *Event) Value { return text(e.Owner()) }},
		{Name: "subject", Type: TypeString, Kinds: all(), Doc: "the most specific of: probed object, pod or container, target, device or hardware, unit, cgroup, task, log writer, check, gauge",
			Read: func(e *Event) Value { return text(e.Subject()) }},
	}
}

func subjectFields() []*Field {
	tasks := []Kind{HungTask, HungTaskResumed, OOMKill, DiskIO, FSError, SockFail, SockFailRecovered}
	inContainers := slices.Concat(tasks, []Kind{Probe, ProbeRecovered})
	devices := []Kind{DiskIO, DiskStalled, DiskResumed, FSError, MountReadOnly, MountWritable, Gauge}
	conns := []Kind{SockFail, SockFailRecovered, Probe, ProbeRecovered}
	task := fieldsOf("task.", func(e *Event) *Task { return e.Task }, tasks...)
	cgroup := fieldsOf("cgroup.", func(e *Event) *Cgroup { return e.Cgroup }, tasks...)
	container := fieldsOf("container.", func(e *Event) *Container { return e.Container }, inContainers...)
	pod := fieldsOf("pod.", func(e *Event) *Container { return e.Container }, inContainers...)
	device := fieldsOf("device.", func(e *Event) *Device { return e.Device }, devices...)
	conn := fieldsOf("conn.", func(e *Event) *Conn { return e.Conn }, conns...)
	return []*Field{
		task("id", TypeString, "thread and start time, unique since boot", func(t *Task) Value { return text(t.ID()) }),
		task("pid", TypeInt, "thread id in the initial pid namespace", func(t *Task) Value { return number(t.PID) }),
		task("tgid", TypeInt, "process id in the initial pid namespace", func(t *Task) Value { return number(t.TGID) }),
		task("comm", TypeString, "thread name, at most 15 bytes", func(t *Task) Value { return text(t.Comm) }),
		task("uid", TypeInt, "user id", func(t *Task) Value { return number(t.UID) }),
		cgroup("id", TypeInt, "64-bit kernfs id", func(c *Cgroup) Value { return number(c.ID) }),
		cgroup("path", TypeString, "path from the hierarchy's root", func(c *Cgroup) Value { return text(c.Path) }),
		{Name: "cgroup.outsidePods", Type: TypeString, Kinds: tasks, Doc: "cgroup.path; empty in pods, where it changes at each restart",
			Read: func(e *Event) Value {
				if e.Cgroup == nil || e.Container != nil && e.Container.PodUID != "" {
					return Value{}
				}
				return text(e.Cgroup.Path)
			}},
		container("id", TypeString, "full runtime id", func(c *Container) Value { return text(c.ID) }),
		container("podUID", TypeString, "UID of the pod", func(c *Container) Value { return text(c.PodUID) }),
		container("name", TypeString, "name in the pod, if the runtime provides it", func(c *Container) Value { return text(c.Name) }),
		pod("name", TypeString, "name of the pod", func(c *Container) Value { return text(c.PodName) }),
		pod("namespace", TypeString, "namespace of the pod", func(c *Container) Value { return text(c.PodNamespace) }),
		{Name: "pod.labels", Type: TypeStringMap, Kinds: inContainers,
			Doc:  "labels when the event was received, the first 64 by name, at most 4 KiB",
			Read: func(e *Event) Value { return Value{Labels: SafeLabels(e.PodLabels)} }},
		few(container("runtime", TypeString, "containerd, cri-o, docker, podman", func(c *Container) Value { return text(c.Runtime) })),
		{Name: "unit", Type: TypeString, Kinds: tasks, Doc: "systemd unit, outside Kubernetes",
			Read: func(e *Event) Value { return text(e.Unit) }},
		device("name", TypeString, "kernel name, such as nvme0n1p2", func(d *Device) Value { return text(d.Name) }),
		device("major", TypeInt, "major number", func(d *Device) Value { return number(d.Major) }),
		device("minor", TypeInt, "minor number", func(d *Device) Value { return number(d.Minor) }),
		device("parent", TypeString, "whole disk of a partition; disk of an NVMe path", func(d *Device) Value { return text(d.Parent) }),
		device("mount", TypeString, "first mount point", func(d *Device) Value {
			if len(d.Mounts) == 0 {
				return Value{}
			}
			return text(d.Mounts[0].Path)
		}),
		conn("src", TypeString, "source address:port", func(c *Conn) Value { return Value{Text: c.Src.String()} }),
		conn("dst", TypeString, "destination address:port", func(c *Conn) Value { return Value{Text: c.Dst.String()} }),
		conn("netns", TypeInt, "inode of the opener's network namespace", func(c *Conn) Value { return number(c.NetNS) }),
	}
}

// fieldsOf returns a function that makes the fields of a payload or subject, which may be absent.
func fieldsOf[T any](
	prefix string, of func(*Event) *T, kinds ...Kind,
) func(name string, t FieldType, doc string, read func(*T) Value) *Field {
	return func(name string, t FieldType, doc string, read func(*T) Value) *Field {
		return &Field{Name: prefix + name, Type: t, Kinds: kinds, Doc: doc, Read: func(e *Event) Value {
			if p := of(e); p != nil {
				return read(p)
			}
			return Value{}
		}}
	}
}

// few marks a field that has few different values.
func few(f *Field) *Field {
	f.Few = true
	return f
}

// address returns the text of a kernel address, which is an identity, not a number; empty for 0.
func address(a uint64) Value {
	if a == 0 {
		return Value{}
	}
	return Value{Text: "0x" + strconv.FormatUint(a, 16)}
}

// connectionFields returns the fields of a failed connection, on its own or of a probe.
func connectionFields() []*Field {
	field := func(
		name string, t FieldType, doc string, sock func(*SockFailData) Value, probe func(*ProbeData) Value,
	) *Field {
		return &Field{
			Name: "event." + name, Type: t, Kinds: []Kind{SockFail, SockFailRecovered, Probe, ProbeRecovered},
			Doc: doc, Read: func(e *Event) Value {
				switch {
				case e.SockFail != nil:
					return sock(e.SockFail)
				case e.Probe != nil:
					return probe(e.Probe)
				}
				return Value{}
			},
		}
	}
	list := func(l []string) Value { return Value{List: l[:min(len(l), MaxFieldList)]} }
	return []*Field{
		field("target", TypeString, `configured name, else address:port; probe: "namespace/pod container", or the service`,
			func(s *SockFailData) Value { return text(s.Target) }, func(p *ProbeData) Value { return text(p.Name) }),
		few(field("verdict", TypeString, "refused, syn-unanswered, accept-queue-full, reset, connected-silent, not-accepted, no-route, ports-exhausted, icmp-unreachable, local-drop, neighbor-failed, slow; probe also tls-failed, bad-status, exec-failed, exec-timeout, prober-late, name-unresolved, no-answer, unexplained",
			func(s *SockFailData) Value { return text(s.Verdict) }, func(p *ProbeData) Value { return text(p.Verdict) })),
		few(field("phase", TypeString, "connect or established; probe also tls, answer",
			func(s *SockFailData) Value { return text(s.Phase) }, func(p *ProbeData) Value { return text(p.Phase) })),
		few(field("errno", TypeString, "errno name",
			func(s *SockFailData) Value { return text(s.Errno) }, func(p *ProbeData) Value { return text(p.Errno) })),
		field("duration", TypeDuration, "from connect to the failure",
			func(s *SockFailData) Value { return duration(s.Duration) }, func(p *ProbeData) Value { return duration(p.Duration) }),
		field("retransmits", TypeInt, "retransmitted segments",
			func(s *SockFailData) Value { return number(s.Retransmits) }, func(p *ProbeData) Value { return number(p.Retransmits) }),
		field("queueLen", TypeInt, "length of the listener's accept queue, if read",
			func(s *SockFailData) Value { return number(s.QueueLen) }, func(p *ProbeData) Value { return number(p.QueueLen) }),
		field("queueMax", TypeInt, "limit of that queue",
			func(s *SockFailData) Value { return number(s.QueueMax) }, func(p *ProbeData) Value { return number(p.QueueMax) }),
		field("evidence", TypeStringList, "facts behind the verdict",
			func(s *SockFailData) Value { return list(s.Evidence) }, func(p *ProbeData) Value { return list(p.Evidence) }),
		field("excluded", TypeStringList, "causes ruled out, with why",
			func(s *SockFailData) Value { return list(s.Excluded) }, func(p *ProbeData) Value { return list(p.Excluded) }),
	}
}

// sharedFields returns the fields that kinds of several families carry.
func sharedFields() []*Field {
	return []*Field{
		{Name: "event.status", Type: TypeString, Kinds: []Kind{Check, DiskIO, Probe, ProbeRecovered}, Few: true,
			Doc: "check: ok, problem, unknown; diskio: blk_status name, if any: IOERR, MEDIUM, TIMEOUT …; probe: the answer: 503, NOT_SERVING, exit 1",
			Read: func(e *Event) Value {
				switch {
				case e.Check != nil:
					return text(e.Check.Status)
				case e.DiskIO != nil:
					return text(e.DiskIO.Status)
				case e.Probe != nil:
					return text(e.Probe.Status)
				}
				return Value{}
			}},
		{Name: "event.reason", Type: TypeString, Kinds: []Kind{Lost, Source, Check}, Few: true, Doc: "lost: a reason of [RecordsLost](problems/RecordsLost.md); source: why it is down; check: the reason that a problem daemon gives",
			Read: func(e *Event) Value {
				switch {
				case e.Lost != nil:
					return text(e.Lost.Reason)
				case e.SourceUp != nil:
					return text(e.SourceUp.Reason)
				case e.Check != nil:
					return text(e.Check.Reason)
				}
				return Value{}
			}},
		{Name: "event.fsType", Type: TypeString, Kinds: []Kind{FSError, MountReadOnly, MountWritable}, Few: true,
			Doc: "ext4, xfs …", Read: func(e *Event) Value {
				switch {
				case e.FSError != nil:
					return text(e.FSError.FSType)
				case e.Mount != nil:
					return text(e.Mount.FSType)
				}
				return Value{}
			}},
	}
}
