//go:build ignore
// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * hungtask: a task in uninterruptible sleep that has not run for too long.
 *
 * Two detectors with one memory (the map "blocked"), so that a hang is reported
 * once, whoever finds it first:
 *
 * The sched_process_hang tracepoint is khungtaskd's finding. It fires at each
 * of its checks as long as the task hangs, also when hung_task_warnings is used
 * up and the kernel log is silent. tp_btf, because only a typed task can be
 * given to bpf_get_task_stack.
 *
 * poll_tasks, an iter/task program that user space runs every few seconds, is
 * for what khungtaskd leaves out (killable sleep such as a vfork parent's;
 * everything where hung_task_timeout_secs is 0; who waits for direct I/O or a
 * flush) and for the end of a hang. A task that is asleep in two walks with the
 * same switch count has not run in between; one that the kernel only woke to
 * wait on has not either (same_sleep).
 *
 * Cost: the tracepoint nothing until a hang; a walk 0.5 us a task, 0.1 us of it in
 * this program (BenchmarkTaskWalk). Kernels 5.10 and later. See docs/adr/0003-hung-tasks.md.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#define RING_BYTES (1 << 20) /* 620 hangs that nobody has read yet */
#define RING_RECORD union kn_hungtask_records
#include "hungtask.h"
union kn_hungtask_records {
	struct kn_hungtask hung;
	struct kn_hungtask_resumed resumed;
};
#include "ring.bpf.h"
#include "core_compat.bpf.h"
#include "subject.bpf.h"

/* include/linux/sched.h */
#define TASK_UNINTERRUPTIBLE 0x0002
#define TASK_NOLOAD 0x0400 /* idle kernel threads: asleep for want of work */
#define PF_EXITING 0x4

/* Ticks a second. */
const volatile __u64 hz = 250;
/* PF_FROZEN before v6.1 (f5d39b020809). Later kernels give a frozen task a
 * state of its own, TASK_FROZEN, and the flag's bit another meaning: 0 there. */
const volatile __u32 pf_frozen;

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
/* CONFIG_TASK_IO_ACCOUNTING, _XACCT. All of them only grow. */
struct task_io_accounting {
	u64 rchar;
	u64 wchar;
	u64 syscr;
	u64 syscw;
	u64 read_bytes;
	u64 write_bytes;
};

struct task_struct___hung {
	unsigned int flags;
	unsigned int __state; /* since v5.14 (2f064a59a11f) */
	long state;	      /* before */
	unsigned in_iowait : 1;
	unsigned long nvcsw;
	unsigned long nivcsw;
	/* CONFIG_DETECT_HUNG_TASK; written by khungtaskd alone */
	unsigned long last_switch_count;
	unsigned long last_switch_time;
	unsigned long blocker; /* v6.16, CONFIG_DETECT_HUNG_TASK_BLOCKER */
	struct task_io_accounting ioac;
};

struct mutex {
	atomic_long_t owner; /* absent with PREEMPT_RT */
};

struct rw_semaphore {
	atomic_long_t owner;
};

struct semaphore {
	unsigned long last_holder; /* v6.16, CONFIG_DETECT_HUNG_TASK_BLOCKER */
};

struct bpf_iter__task {
	struct task_struct *task;
};
#pragma clang attribute pop

/* Uninterruptible sleeps by pid, those of a few milliseconds too when a walk
 * meets them. Removed when a walk meets the task out of its sleep, or by user
 * space when a walk did not meet the task at all. 600 KiB. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct kn_hungtask_sleep);
} blocked SEC(".maps");

/* Pids that one of the two detectors is dealing with: an element that must not
 * exist yet is the lock that kernel 5.10 permits tracing programs. Held for
 * microseconds; at most one a CPU. 8 KiB. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 128);
	__type(key, __u32);
	__type(value, __u8);
} busy SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct kn_hungtask_settings);
} settings SEC(".maps");

static __always_inline bool lock_pid(__u32 pid)
{
	__u8 taken = 1;

	return bpf_map_update_elem(&busy, &pid, &taken, BPF_NOEXIST) == 0;
}

static __always_inline void unlock_pid(__u32 pid)
{
	bpf_map_delete_elem(&busy, &pid);
}

static __always_inline __u32 task_state(struct task_struct *task)
{
	struct task_struct___hung *t = (void *)task;

	if (bpf_core_field_exists(t->__state))
		return BPF_CORE_READ(t, __state);
	return BPF_CORE_READ(t, state);
}

static __always_inline bool stuck(struct task_struct *task)
{
	struct task_struct___hung *t = (void *)task;
	__u32 state = task_state(task);

	if (!(state & TASK_UNINTERRUPTIBLE) || state & TASK_NOLOAD)
		return false;
	return !pf_frozen || !(BPF_CORE_READ(t, flags) & pf_frozen);
}

static __always_inline __u64 voluntary_switches(struct task_struct *task)
{
	struct task_struct___hung *t = (void *)task;

	return BPF_CORE_READ(t, nvcsw);
}

/* How long khungtaskd knows the task in this very sleep: 0 where it does not
 * look (switched off, killable sleep) or has not yet. */
static __always_inline __u64 known_to_khungtaskd_ns(struct task_struct *task)
{
	struct task_struct___hung *t = (void *)task;
	__u64 since, switches = BPF_CORE_READ(t, nvcsw) + BPF_CORE_READ(t, nivcsw);

	if (!bpf_core_field_exists(t->last_switch_time))
		return 0;
	since = BPF_CORE_READ(t, last_switch_time);
	if (!since || BPF_CORE_READ(t, last_switch_count) != switches)
		return 0;
	return (bpf_jiffies64() - since) * 1000000000ULL / hz;
}

/* Whom the task waits for. The two low bits of task->blocker tell what it
 * points to (include/linux/hung_task.h), the three of an owner word are flags. */
static __always_inline void fill_lock(struct kn_hungtask *r, struct task_struct *task)
{
	struct task_struct___hung *t = (void *)task;
	unsigned long blocker = 0, owner = 0;
	void *lock;

	r->lock_addr = 0;
	r->lock = KN_LOCK_NONE;
	r->holder_hint = 0;
	no_task(&r->holder);
	if (!bpf_core_field_exists(t->blocker))
		return;
	blocker = BPF_CORE_READ(t, blocker);
	if (!blocker)
		return;
	lock = (void *)(blocker & ~3UL);
	switch (blocker & 3) {
	case 0: {
		struct mutex *m = lock;

		r->lock = KN_LOCK_MUTEX;
		if (bpf_core_field_exists(m->owner))
			owner = BPF_CORE_READ(m, owner.counter);
		break;
	}
	case 1: {
		struct semaphore *s = lock;

		/* Who took it last may have given it back. */
		r->lock = KN_LOCK_SEMAPHORE;
		r->holder_hint = 1;
		if (bpf_core_field_exists(s->last_holder))
			owner = BPF_CORE_READ(s, last_holder);
		break;
	}
	default: {
		struct rw_semaphore *rw = lock;

		r->lock = (blocker & 3) == 2 ? KN_LOCK_RWSEM_READ : KN_LOCK_RWSEM_WRITE;
		if (bpf_core_field_exists(rw->owner))
			owner = BPF_CORE_READ(rw, owner.counter);
		/* Bit 0: readers have it, of whom the last is remembered,
		 * even when it is gone. */
		r->holder_hint = owner & 1;
	}
	}
	r->lock_addr = (__u64)lock;
	owner &= ~7UL;
	if (owner)
		fill_task(&r->holder, (struct task_struct *)owner);
	else
		r->holder_hint = 0;
}

/* A function of its own: it is most of the object's size, and called from six
 * places. */
static __noinline int fill_groups(struct kn_chain *memory, struct kn_chain *dfl,
				  struct task_struct *task)
{
	fill_memory_chain(memory, task);
	fill_default_chain(dfl, task);
	return 0;
}

/* The kernel leaves the functions of its scheduler out of a sleeping task's
 * stack (in_sched_functions), and with them mutex_lock, down_read, io_schedule:
 * just what tells what the task waits for. It stands in the call before the
 * innermost frame's return address. */
static __always_inline __u64 called_before(__u64 ret)
{
	struct pt_regs___x86 *x86 = NULL;
	struct pt_regs___arm64 *arm64 = NULL;

	if (bpf_core_field_exists(x86->di)) {
		__u8 op = 0;
		__s32 rel = 0;

		bpf_probe_read_kernel(&op, sizeof(op), (void *)(ret - 5));
		bpf_probe_read_kernel(&rel, sizeof(rel), (void *)(ret - 4));
		if (op == 0xe8) /* call rel32 */
			return ret + (__s64)rel;
	} else if (bpf_core_field_exists(arm64->regs)) {
		__u32 insn = 0;

		bpf_probe_read_kernel(&insn, sizeof(insn), (void *)(ret - 4));
		if (insn >> 26 == 0x25) /* bl imm26, in instructions */
			return ret - 4 + (__s64)((__s32)(insn << 6) >> 4);
	}
	return 0;
}

static __always_inline bool report_hung(struct task_struct *task, struct kn_hungtask_sleep *s,
					__u8 detector, const bool typed)
{
	struct task_struct___hung *t = (void *)task;
	struct kn_hungtask *r = reserve_record(struct kn_hungtask, KN_HUNGTASK);
	long n = 0;

	if (!r)
		return false;
	r->task = s->task;
	r->blocked_ns = s->seen_ns - s->since_ns;
	r->detector = detector;
	r->in_iowait = BPF_CORE_READ_BITFIELD_PROBED(t, in_iowait);
	fill_lock(r, task);
	if (typed)
		n = bpf_get_task_stack(task, r->stack, sizeof(r->stack), 0);
	r->stack_depth = n > 0 ? n / 8 : 0;
	r->called = n > 0 ? called_before(r->stack[0]) : 0;
	fill_groups(&r->memory, &r->dfl, task);
	bpf_ringbuf_submit(r, 0);
	return true;
}

/* task is the one that slept, or the one that has its pid now. */
static __always_inline bool report_resumed(struct task_struct *task, struct kn_hungtask_sleep *s,
					   bool same_task)
{
	struct task_struct___hung *t = (void *)task;
	struct kn_hungtask_resumed *r =
		reserve_record(struct kn_hungtask_resumed, KN_HUNGTASK_RESUMED);

	if (!r)
		return false;
	r->task = s->task;
	r->blocked_ns = s->seen_ns - s->since_ns;
	r->detector = s->reported;
	/* One that a signal ended may be met on its way out, or waiting for its
	 * parent. */
	r->exited = !same_task || BPF_CORE_READ(t, flags) & PF_EXITING;
	__builtin_memset(r->pad, 0, sizeof(r->pad));
	if (!same_task) {
		no_chain(&r->memory);
		no_chain(&r->dfl);
	} else {
		fill_groups(&r->memory, &r->dfl, task);
	}
	bpf_ringbuf_submit(r, 0);
	return true;
}

/* A number for what the task waits for (the call chain of its sleep) and for the
 * I/O that it did before: another one after it has read, written or submitted
 * anything. 0: it waits for no I/O. A function of its own, for its stack. */
static __noinline __u64 io_wait(struct task_struct *task)
{
	struct task_struct___hung *t = (void *)task;
	__u64 frames[KN_HUNG_STACK] = {}, wait = 0;
	long n;

	if (!BPF_CORE_READ_BITFIELD_PROBED(t, in_iowait))
		return 0;
	n = bpf_get_task_stack(task, frames, sizeof(frames), 0);
	if (n <= 0)
		return 0;
	for (int i = 0; i < KN_HUNG_STACK; i++)
		wait = (wait ^ frames[i]) * 0x100000001b3ULL; /* FNV-1a, by words */
	if (bpf_core_field_exists(t->ioac.rchar))
		wait += BPF_CORE_READ(t, ioac.rchar) + BPF_CORE_READ(t, ioac.wchar) +
			BPF_CORE_READ(t, ioac.syscr) + BPF_CORE_READ(t, ioac.syscw);
	if (bpf_core_field_exists(t->ioac.read_bytes))
		wait += BPF_CORE_READ(t, ioac.read_bytes) + BPF_CORE_READ(t, ioac.write_bytes);
	return wait ?: 1;
}

/*
 * The kernel wakes who waits for direct I/O or a flush in half of
 * hung_task_timeout_secs, so that khungtaskd passes them by (blk_io_schedule,
 * submit_bio_wait); they wait on. Whether a task has slept so few times since it
 * fell asleep that this may be all that woke it: once more than there was time
 * for, because when it fell asleep is not known.
 */
static __always_inline bool may_wait_on(struct kn_hungtask_sleep *s, __u64 switches, __u64 now,
					struct kn_hungtask_settings *set)
{
	return s->wait && set->wake_ns &&
	       switches - s->switches <= (now - s->since_ns) / set->wake_ns + 1;
}

/*
 * Whether a sleeping task is still in the sleep that is remembered: it has not
 * slept anew since. Or it was woken only to wait on, at the same place and
 * without having done I/O in between.
 *
 * How wrong that can be: a task that does nothing but wait for flushes (they are
 * not accounted; without CONFIG_TASK_IO_ACCOUNTING nothing is), each of which
 * takes nearly as long as the kernel lets it sleep, counts as one that waits.
 */
static __always_inline bool same_sleep(struct task_struct *task, struct kn_hungtask_sleep *s,
				       __u64 switches, __u64 now, struct kn_hungtask_settings *set,
				       const bool typed)
{
	if (s->switches == switches)
		return true;
	return typed && may_wait_on(s, switches, now, set) && s->wait == io_wait(task);
}

/* Whether the walk has come across a task just when it was woken to wait on: awake,
 * or on its way back to sleep. The next walk will show. */
static __always_inline bool just_woken(struct task_struct *task, struct kn_hungtask_sleep *s,
				       __u64 switches, __u64 now, struct kn_hungtask_settings *set)
{
	struct task_struct___hung *t = (void *)task;
	__u32 state = task_state(task);

	return !s->woken && (!state || state & TASK_UNINTERRUPTIBLE) &&
	       !(BPF_CORE_READ(t, flags) & PF_EXITING) && may_wait_on(s, switches, now, set);
}

/* remember adds a sleep that no walk has met before. */
static __always_inline struct kn_hungtask_sleep *remember(struct task_struct *task, __u32 pid,
							  __u64 switches, __u64 now,
							  struct kn_hungtask_settings *set,
							  const bool typed)
{
	struct kn_hungtask_sleep s = {};

	fill_task(&s.task, task);
	s.switches = switches;
	s.wait = typed ? io_wait(task) : 0;
	s.seen_ns = now;
	s.generation = set->generation;
	s.since_ns = now - known_to_khungtaskd_ns(task);
	if (bpf_map_update_elem(&blocked, &pid, &s, BPF_ANY)) {
		/* Full. One loss a walk: how many of the sleeps would have
		 * become hangs nobody knows. */
		if (set->full_generation != set->generation)
			count_lost();
		set->full_generation = set->generation;
	}
	return bpf_map_lookup_elem(&blocked, &pid);
}

/* Called with the pid locked. A record that finds the ring full is counted and
 * tried again by the next walk, because the entry stays as it is. */
static __always_inline void handle_task(struct task_struct *task, __u32 pid, const __u8 detector,
					const bool typed, struct kn_hungtask_settings *set)
{
	struct kn_hungtask_sleep *s = bpf_map_lookup_elem(&blocked, &pid);
	__u64 switches = voluntary_switches(task), now = bpf_ktime_get_ns(), blocked_ns;
	bool same_task = s && s->task.start_ns == BPF_CORE_READ(task, start_boottime);
	bool asleep = detector == KN_HUNG_KHUNGTASKD || stuck(task);

	if (s && !(same_task && asleep && same_sleep(task, s, switches, now, set, typed))) {
		if (same_task && just_woken(task, s, switches, now, set)) {
			s->woken = 1;
			s->generation = set->generation;
			return;
		}
		if (s->reported && !report_resumed(task, s, same_task)) {
			s->generation = set->generation;
			return;
		}
		bpf_map_delete_elem(&blocked, &pid);
		s = NULL;
	}
	if (!asleep)
		return;
	if (!s)
		s = remember(task, pid, switches, now, set, typed);
	if (!s)
		return;
	s->generation = set->generation;
	s->seen_ns = now;
	s->woken = 0;
	if (s->reported) {
		/* By its first detector: the second only confirms it. Once more for an
		 * agent that has started since. */
		if (detector == KN_HUNG_POLL && s->run != set->run &&
		    report_hung(task, s, s->reported, typed))
			s->run = set->run;
		return;
	}
	blocked_ns = known_to_khungtaskd_ns(task);
	if (blocked_ns > now - s->since_ns)
		s->since_ns = now - blocked_ns;
	blocked_ns = now - s->since_ns;
	if (blocked_ns < (detector == KN_HUNG_POLL ? set->threshold_ns : set->hang_threshold_ns))
		return;
	if (report_hung(task, s, detector, typed)) {
		s->reported = detector;
		s->run = set->run;
	}
}

static __always_inline int handle_hang(struct task_struct *task, const bool typed)
{
	__u32 zero = 0, pid = BPF_CORE_READ(task, pid);
	struct kn_hungtask_settings *set = bpf_map_lookup_elem(&settings, &zero);

	/* Taken: the walk is looking at this task right now. */
	if (!set || !lock_pid(pid))
		return 0;
	handle_task(task, pid, KN_HUNG_KHUNGTASKD, typed, set);
	unlock_pid(pid);
	return 0;
}

SEC("tp_btf/sched_process_hang")
int BPF_PROG(hang_btf, struct task_struct *task)
{
	return handle_hang(task, true);
}

SEC("raw_tp/sched_process_hang")
int hang_raw(__u64 *ctx)
{
	return handle_hang((struct task_struct *)ctx[0], false);
}

SEC("iter/task")
int poll_tasks(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct kn_hungtask_settings *set;
	__u32 zero = 0, pid;

	if (!task) /* the end of the walk */
		return 0;
	pid = task->pid;
	if (!stuck(task) && !bpf_map_lookup_elem(&blocked, &pid))
		return 0;
	set = bpf_map_lookup_elem(&settings, &zero);
	if (!set || !lock_pid(pid))
		return 0;
	handle_task(task, pid, KN_HUNG_POLL, true, set);
	unlock_pid(pid);
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
