//go:build ignore
// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * oomkill: a process chosen as victim of an out-of-memory kill.
 *
 * Hook: the mark_victim tracepoint, the one place that every kill passes: memcg
 * and global, siblings of memory.oom.group, and tasks that were dying already
 * (oom_kill_process misses the last two). It runs in the context of the task
 * whose allocation failed. The context programs on oom_kill_process only add
 * what the tracepoint can't tell: whose limit it was and, up to 6.0, the victim
 * task itself.
 *
 * Cost: nothing until a kill. Kernels 5.10 and later.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#define RING_BYTES (1 << 20) /* 660 kills that nobody has read yet */
#define RING_RECORD struct kn_oomkill
#include "oomkill.h"
#include "ring.bpf.h"
#include "core_compat.bpf.h"
#include "subject.bpf.h"

/* Ancestors searched for the limiting group. */
#define MAX_DEPTH 10

/* v6.1 and its back-ports hand mark_victim the task, older kernels the pid. */
const volatile bool mark_victim_has_task;

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct page_counter {
	atomic_long_t usage;
	unsigned long max;
};

struct mem_cgroup {
	struct cgroup_subsys_state css;
	struct page_counter memory;
};

/* Gone from kernels built without MEMCG_V1 (v6.11). */
struct mem_cgroup___v1 {
	bool oom_lock;
};

struct oom_control {
	struct mem_cgroup *memcg;
	struct task_struct *chosen;
};
#pragma clang attribute pop

struct oom_context {
	struct mem_cgroup *memcg; /* NULL: the whole machine */
	struct task_struct *chosen;
	__u32 tid; /* of the triggering thread; 0: its victim has come */
	__u32 pad;
};

/* What oom_kill_process was called for last. One is enough: the kernel holds
 * oom_lock until the victim is marked. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct oom_context);
} context SEC(".maps");

static __always_inline int handle_context(struct oom_control *oc)
{
	__u32 zero = 0;
	struct oom_context c = {
		.memcg = BPF_CORE_READ(oc, memcg),
		.chosen = BPF_CORE_READ(oc, chosen),
		.tid = bpf_get_current_pid_tgid(),
	};

	bpf_map_update_elem(&context, &zero, &c, BPF_ANY);
	return 0;
}

SEC("fentry/oom_kill_process")
int BPF_PROG(context_fentry, struct oom_control *oc)
{
	return handle_context(oc);
}

SEC("kprobe/oom_kill_process")
int context_kp(void *ctx)
{
	return handle_context((struct oom_control *)first_argument(ctx));
}

static __always_inline void fill_memory(struct kn_oomkill *r, struct task_struct *victim)
{
	struct mm_struct *mm = BPF_CORE_READ(victim, mm);

	r->total_vm = BPF_CORE_READ(mm, total_vm);
	r->anon = rss_pages(mm, RSS_ANON);
	r->file = rss_pages(mm, RSS_FILE);
	r->shmem = rss_pages(mm, RSS_SHMEM);
	r->swap = rss_pages(mm, RSS_SWAP);
	r->page_tables = BPF_CORE_READ(mm, pgtables_bytes.counter);
	r->rss_approximate = rss_is_percpu(mm);
	r->oom_score_adj = BPF_CORE_READ(victim, signal, oom_score_adj);
}

/*
 * The group whose limit was hit: the one oom_kill_process was called for; else
 * the topmost that holds oom_lock (the kernel takes it on the whole subtree of
 * the group that is out of memory); else the first that is full. 64 pages are
 * the largest charge batch: a charge that would have gone over was refused.
 */
static __always_inline void find_limit(struct kn_oomkill *r, struct cgroup_subsys_state *css,
				       struct oom_context *c)
{
	int locked = -1, full = -1, level = -1;
	__u64 lmax = 0, luse = 0, fmax = 0, fuse = 0;

	if (!has_memory_groups()) {
		r->scope = KN_OOM_GLOBAL; /* no group has a limit */
		return;
	}
	for (int i = 0; i < MAX_DEPTH && css; i++) {
		struct mem_cgroup *mc = (void *)css;
		struct mem_cgroup___v1 *v1 = (void *)css;
		struct cgroup_subsys_state *parent = BPF_CORE_READ(css, parent);
		__u64 max = BPF_CORE_READ(mc, memory.max);
		__u64 use = BPF_CORE_READ(mc, memory.usage.counter);

		if (!parent)
			break; /* the root has no limit */
		if (c && c->memcg == mc) {
			r->scope = KN_OOM_MEMCG;
			locked = i;
			lmax = max;
			luse = use;
			break;
		}
		if (!c && bpf_core_field_exists(v1->oom_lock) && BPF_CORE_READ(v1, oom_lock)) {
			locked = i;
			lmax = max;
			luse = use;
		}
		if (full < 0 && use + 64 >= max) {
			full = i;
			fmax = max;
			fuse = use;
		}
		css = parent;
	}
	if (c && !c->memcg) {
		r->scope = KN_OOM_GLOBAL;
		return;
	}
	level = locked >= 0 ? locked : full;
	if (level < 0)
		return;
	r->limit_level = level;
	r->limit = locked >= 0 ? lmax : fmax;
	r->usage = locked >= 0 ? luse : fuse;
}

SEC("raw_tp/mark_victim")
int victim_raw(__u64 *ctx)
{
	struct task_struct *trigger = (void *)bpf_get_current_task();
	struct task_struct *victim = NULL, *chosen;
	__u32 zero = 0, tid = bpf_get_current_pid_tgid();
	struct oom_context *c = bpf_map_lookup_elem(&context, &zero);
	struct kn_oomkill *r = reserve_record(struct kn_oomkill, KN_OOMKILL);
	long n;

	if (!r)
		return 0;
	if (c && c->tid != tid)
		c = NULL;
	/* A variable: BPF_CORE_READ(c->chosen, …) would relocate our own struct. */
	chosen = c ? c->chosen : NULL;
	r->total_vm = r->anon = r->file = r->shmem = r->swap = r->page_tables = 0;
	r->limit = ~0ULL;
	r->usage = 0;
	r->oom_score_adj = 0;
	r->rss_approximate = 0;
	r->scope = KN_OOM_UNKNOWN;
	r->victim_partial = 0;
	r->limit_level = -1;
	fill_task(&r->trigger, trigger);

	if (mark_victim_has_task) {
		victim = (void *)ctx[0];
	} else if (chosen && BPF_CORE_READ(chosen, tgid) == (int)ctx[0]) {
		victim = chosen;
	}
	if (victim) {
		fill_task(&r->victim, victim);
		fill_memory(r, victim);
	} else {
		/* The trigger is inside the group that is out of memory, so its
		 * groups stand in for the victim's. */
		no_task(&r->victim);
		r->victim.pid = r->victim.tgid = (__u32)ctx[0];
		r->victim_partial = 1;
		victim = trigger;
	}
	fill_memory_chain(&r->memory, victim);
	fill_default_chain(&r->dfl, victim);
	find_limit(r, memory_css(victim), c);
	if (c)
		c->tid = 0;

	n = bpf_get_stack(ctx, r->stack, sizeof(r->stack), 0);
	r->stack_depth = n > 0 ? n / 8 : 0;
	bpf_ringbuf_submit(r, 0);
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
