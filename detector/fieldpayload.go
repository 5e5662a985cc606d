package detector

import "github.com/kernosis/kernosis/collector/event"

func hungTaskFields() []*Field {
	of := func(e *event.Event) *event.HungTaskData { return e.HungTask }
	field := func(name string, t Type, few bool, doc string, read func(*event.HungTaskData) value) *Field {
		return &Field{Name: "event." + name, Type: t, Kinds: kinds(event.HungTask, event.HungTaskResumed),
			Doc: doc, few: few, read: part(of, read)}
	}
	return []*Field{
		field("blockedFor", Duration, false, "how long it has been blocked, a lower bound", func(h *event.HungTaskData) value { return duration(h.BlockedFor) }),
		field("wait", String, true, "io, lock, command (discard, erase, SG_IO: may take long when all is well) or other", func(h *event.HungTaskData) value { return text(h.Wait) }),
		field("lock", String, true, "mutex, semaphore, rwsem-read, rwsem-write; empty: not a recorded lock", func(h *event.HungTaskData) value { return text(h.Lock) }),
		field("lockAddr", String, false, "identity of the lock; empty: none known", func(h *event.HungTaskData) value { return address(h.LockAddr) }),
		field("holder", OptionalString, false, `who holds the lock, "comm[pid]", with "possibly " where the kernel keeps only a hint`, func(h *event.HungTaskData) value {
			s := taskText(h.Holder)
			if s != "" && h.HolderHint {
				s = "possibly " + s
			}
			return optional(s)
		}),
		field("detector", String, true, "khungtaskd or poll", func(h *event.HungTaskData) value { return text(h.Detector) }),
		field("exited", Bool, false, "the task is gone (hungtask.resumed)", func(h *event.HungTaskData) value { return boolean(h.Exited) }),
	}
}

func oomKillFields() []*Field {
	of := func(e *event.Event) *event.OOMKillData { return e.OOMKill }
	field := func(name string, t Type, few bool, doc string, read func(*event.OOMKillData) value) *Field {
		return &Field{Name: "event." + name, Type: t, Kinds: kinds(event.OOMKill), Doc: doc, few: few, read: part(of, read)}
	}
	size := func(name, doc string, read func(*event.OOMKillData) uint64) *Field {
		return field(name, Int, false, doc, func(o *event.OOMKillData) value { return number(read(o)) })
	}
	return []*Field{
		field("scope", String, true, "memcg, global or unknown", func(o *event.OOMKillData) value { return text(o.Scope) }),
		field("limitCgroup", String, false, "path of the cgroup whose limit was hit", func(o *event.OOMKillData) value {
			if o.LimitCgroup == nil {
				return value{}
			}
			return text(o.LimitCgroup.Path)
		}),
		size("limit", "memory limit of limitCgroup, bytes", func(o *event.OOMKillData) uint64 { return o.Limit }),
		size("usage", "memory use of limitCgroup at the kill, bytes", func(o *event.OOMKillData) uint64 { return o.Usage }),
		field("trigger", String, false, `task whose allocation failed, "comm[pid]"`, func(o *event.OOMKillData) value { return text(taskText(o.Trigger)) }),
		size("totalVM", "the victim's address space, bytes", func(o *event.OOMKillData) uint64 { return o.TotalVM }),
		size("anonRSS", "the victim's anonymous memory, bytes", func(o *event.OOMKillData) uint64 { return o.AnonRSS }),
		size("fileRSS", "the victim's mapped file memory, bytes", func(o *event.OOMKillData) uint64 { return o.FileRSS }),
		size("shmemRSS", "the victim's shared memory, bytes", func(o *event.OOMKillData) uint64 { return o.ShmemRSS }),
		size("swap", "the victim's swapped memory, bytes", func(o *event.OOMKillData) uint64 { return o.Swap }),
		size("pageTables", "the victim's page tables, bytes", func(o *event.OOMKillData) uint64 { return o.PageTables }),
		field("approximate", Bool, false, "the RSS figures miss per-CPU remainders", func(o *event.OOMKillData) value { return boolean(o.Approximate) }),
		field("along", Bool, false, "killed after another process, for the same want of memory (memory.oom.group)", func(o *event.OOMKillData) value { return boolean(o.Along) }),
		field("oomScoreAdj", Int, false, "the victim's oom_score_adj", func(o *event.OOMKillData) value { return number(o.OOMScoreAdj) }),
	}
}

func diskFields() []*Field {
	of := func(e *event.Event) *event.DiskIOData { return e.DiskIO }
	disk := func(name string, t Type, few bool, doc string, read func(*event.DiskIOData) value) *Field {
		return &Field{Name: "event." + name, Type: t, Kinds: kinds(event.DiskIO), Doc: doc, few: few, read: part(of, read)}
	}
	stallOf := func(e *event.Event) *event.DiskStallData { return e.DiskStall }
	fsOf := func(e *event.Event) *event.FSErrorData { return e.FSError }
	mountOf := func(e *event.Event) *event.MountData { return e.Mount }
	return []*Field{
		disk("op", String, true, "read, write, flush, discard, write-zeroes, zone-append, other", func(d *event.DiskIOData) value { return text(d.Op) }),
		disk("sector", Int, false, "512-byte units from the start of the device", func(d *event.DiskIOData) value { return number(d.Sector) }),
		disk("bytes", Int, false, "size of the request", func(d *event.DiskIOData) value { return number(d.Bytes) }),
		disk("error", String, true, "errno name: EIO, ENOSPC, ETIMEDOUT …", func(d *event.DiskIOData) value { return text(d.Error) }),
		disk("readAhead", Bool, false, "speculative: the real read follows", func(d *event.DiskIOData) value { return boolean(d.ReadAhead) }),
		disk("bio", Bool, false, "from a bio-based device (dm, md, NVMe with several paths, zram)", func(d *event.DiskIOData) value { return boolean(d.Bio) }),
		disk("lower", String, true, "of a volume (dm, md): the device below whose error it is; empty: its own", func(d *event.DiskIOData) value { return text(d.Lower) }),
		{Name: "event.inFlight", Type: Int, Kinds: kinds(event.DiskStalled, event.DiskResumed), Doc: "I/Os in flight, those that wait for the device",
			read: part(stallOf, func(d *event.DiskStallData) value { return number(d.InFlight) })},
		{Name: "event.stalledFor", Type: Duration, Kinds: kinds(event.DiskStalled, event.DiskResumed), Doc: "how long it has completed nothing, a lower bound",
			read: part(stallOf, func(d *event.DiskStallData) value { return duration(d.StalledFor) })},
		{Name: "event.function", Type: String, Kinds: kinds(event.FSError), few: true, Doc: "kernel function that found the error",
			read: part(fsOf, func(f *event.FSErrorData) value { return text(f.Function) })},
		{Name: "event.line", Type: Int, Kinds: kinds(event.FSError), Doc: "line in the kernel source",
			read: part(fsOf, func(f *event.FSErrorData) value { return number(f.Line) })},
		{Name: "event.fsType", Type: String, Kinds: kinds(event.FSError, event.MountReadOnly, event.MountWritable), few: true,
			Doc: "filesystem type: ext4, xfs …", read: func(e *event.Event) value {
				switch {
				case e.FSError != nil:
					return text(e.FSError.FSType)
				case e.Mount != nil:
					return text(e.Mount.FSType)
				}
				return value{}
			}},
		{Name: "event.path", Type: String, Kinds: kinds(event.MountReadOnly, event.MountWritable), Doc: "first mount point",
			read: part(mountOf, func(m *event.MountData) value { return text(m.Path) })},
		{Name: "event.roReason", Type: String, Kinds: kinds(event.MountReadOnly, event.MountWritable), few: true,
			Doc:  "what told: superblock-ro, emergency-ro, shutdown, error-policy; remounted, unmounted",
			read: part(mountOf, func(m *event.MountData) value { return text(m.Reason) })},
	}
}

func sourceFields() []*Field {
	return []*Field{
		{Name: "event.stem", Type: String, Kinds: kinds(event.Lost, event.Source, event.Canary), few: true, Doc: "family of kinds it is about, of one log or check with its name: log/kmsg",
			read: func(e *event.Event) value {
				switch {
				case e.Lost != nil:
					return text(e.Lost.Stem)
				case e.SourceUp != nil:
					return text(e.SourceUp.Stem)
				case e.CanaryRun != nil:
					return text(e.CanaryRun.Stem)
				}
				return value{}
			}},
		{Name: "event.count", Type: Int, Kinds: kinds(event.Lost), Doc: "records or lines lost; 0: nobody knows how many, and possibly none",
			read: part(func(e *event.Event) *event.LostData { return e.Lost }, func(l *event.LostData) value { return number(l.Count) })},
		{Name: "event.reason", Type: String, Kinds: kinds(event.Lost, event.Source, event.Check), few: true, Doc: "lost: ring-full, recursion, malformed, foreign-wire, of a log overrun, truncated, rotated, too-long, malformed, suppressed, bad-position; source: why it is down; check: the reason that a problem daemon gives",
			read: func(e *event.Event) value {
				switch {
				case e.Lost != nil:
					return text(e.Lost.Reason)
				case e.SourceUp != nil:
					return text(e.SourceUp.Reason)
				case e.Check != nil:
					return text(e.Check.Reason)
				}
				return value{}
			}},
		{Name: "event.up", Type: Bool, Kinds: kinds(event.Source), Doc: "the source sees its faults",
			read: part(func(e *event.Event) *event.SourceData { return e.SourceUp }, func(s *event.SourceData) value { return boolean(s.Up) })},
	}
}
