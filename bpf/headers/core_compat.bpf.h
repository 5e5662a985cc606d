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

enum { RSS_FILE, RSS_ANON, RSS_SWAP, RSS_SHMEM };

static __always_inline bool rss_is_percpu(struct mm_struct *mm)
{
	return !bpf_core_field_exists(mm->rss_stat.count);
}

/* Pages (or swap entries) of one kind; with percpu counters without the
 * remainders that the CPUs have not folded in yet. */
static __always_inline __u64 rss_pages(struct mm_struct *mm, const int kind)
{
	__s64 n;

	if (bpf_core_field_exists(mm->rss_stat.count)) {
		n = BPF_CORE_READ(mm, rss_stat.count[kind].counter);
	} else {
		struct mm_struct___percpu *pc = (void *)mm;

		n = BPF_CORE_READ(pc, rss_stat[kind].count);
	}
	return n < 0 ? 0 : n;
}

#endif
