/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * One accessor for each thing that kernels between 5.10 and today lay out
 * differently, or that some are built without. The choice is made when the program is loaded, from the running
 * kernel's BTF.
 */
#ifndef KERNOSIS_CORE_COMPAT_BPF_H
#define KERNOSIS_CORE_COMPAT_BPF_H

/* The first argument of a probed function, from the context of a kprobe. One
 * object serves both architectures: which flavour of pt_regs is real shows in
 * the running kernel's BTF. */
static __always_inline unsigned long first_argument(void *ctx)
{
	struct pt_regs___x86 *x86 = ctx;
	struct pt_regs___arm64 *arm64 = ctx;

	if (bpf_core_field_exists(x86->di))
		return BPF_CORE_READ(x86, di);
	if (bpf_core_field_exists(arm64->regs))
		return BPF_CORE_READ(arm64, regs[0]);
	return 0;
}

static __always_inline struct kernfs_node *kernfs_parent(struct kernfs_node *kn)
{
	struct kernfs_node___rcu *rcu = (void *)kn;

	if (bpf_core_field_exists(rcu->__parent))
		return BPF_CORE_READ(rcu, __parent);
	return BPF_CORE_READ(kn, parent);
}

static __always_inline bool has_memory_groups(void) /* CONFIG_MEMCG */
{
	return bpf_core_enum_value_exists(enum cgroup_subsys_id, memory_cgrp_id);
}

/* A task's group in the memory hierarchy; NULL without CONFIG_MEMCG. */
static __always_inline struct cgroup_subsys_state *memory_css(struct task_struct *t)
{
	if (!has_memory_groups())
		return NULL;
	return BPF_CORE_READ(t, cgroups, subsys[bpf_core_enum_value(enum cgroup_subsys_id, memory_cgrp_id)]);
}

/* The same as a node of the hierarchy's filesystem. */
static __always_inline struct kernfs_node *memory_node(struct task_struct *t)
{
	struct cgroup_subsys_state *css = memory_css(t);

	return css ? BPF_CORE_READ(css, cgroup, kn) : NULL;
}

/* A task's group in the default (v2) hierarchy; NULL without CONFIG_CGROUPS. */
static __always_inline struct kernfs_node *default_node(struct task_struct *t)
{
	return bpf_core_field_exists(t->cgroups) ? BPF_CORE_READ(t, cgroups, dfl_cgrp, kn) : NULL;
}

/* MM_FILEPAGES and so on (linux/mm_types_task.h). Literals: see rss_pages. */
#define RSS_FILE 0
#define RSS_ANON 1
#define RSS_SWAP 2
#define RSS_SHMEM 3

static __always_inline bool rss_is_percpu(struct mm_struct *mm)
{
	return !bpf_core_field_exists(mm->rss_stat.count);
}

static __always_inline __u64 not_negative(__s64 n)
{
	return n < 0 ? 0 : n;
}

/* Pages (or swap entries) of one kind; with percpu counters without the
 * remainders that the CPUs have not folded in yet. A macro, because the index
 * must be a literal for CO-RE to relocate it: a variable is multiplied with the
 * size that percpu_counter has here, not with the kernel's. */
#define rss_pages(mm, kind)                                                                \
	(bpf_core_field_exists((mm)->rss_stat.count) ?                                     \
		 not_negative(BPF_CORE_READ(mm, rss_stat.count[kind].counter)) :           \
		 not_negative(BPF_CORE_READ((struct mm_struct___percpu *)(mm), rss_stat[kind].count)))

#endif
