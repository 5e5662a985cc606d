/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * One accessor for each thing that kernels between 5.10 and today lay out
 * differently. The choice is made when the program is loaded, from the running
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
