/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Who it was: tasks and control groups, read at the time of the fault, because
 * both may be gone when user space looks. */
#ifndef KERNOSIS_SUBJECT_BPF_H
#define KERNOSIS_SUBJECT_BPF_H

static __always_inline void fill_task(struct kn_task *out, struct task_struct *t)
{
	out->pid = BPF_CORE_READ(t, pid);
	out->tgid = BPF_CORE_READ(t, tgid);
	out->start_ns = BPF_CORE_READ(t, start_boottime);
	out->uid = BPF_CORE_READ(t, cred, uid.val);
	out->pad = 0;
	BPF_CORE_READ_INTO(&out->comm, t, comm);
}

static __always_inline void no_task(struct kn_task *out)
{
	__builtin_memset(out, 0, sizeof(*out));
}

static __always_inline void fill_chain(struct kn_chain *out, struct kernfs_node *kn)
{
	struct kernfs_node *parent;
	__u32 depth = 0;

#pragma unroll
	for (int i = 0; i < KN_LEVELS; i++) {
		out->id[i] = 0;
		out->name[i][0] = 0;
		/* The root has no parent, and no name worth keeping. */
		parent = kn ? kernfs_parent(kn) : NULL;
		if (parent) {
			out->id[i] = BPF_CORE_READ(kn, id);
			bpf_probe_read_kernel_str(out->name[i], KN_NAME, BPF_CORE_READ(kn, name));
			depth = i + 1;
		}
		kn = parent;
	}
	out->depth = depth;
	out->truncated = kn && kernfs_parent(kn) ? 1 : 0;
}

static __always_inline void no_chain(struct kn_chain *out)
{
	out->depth = 0;
	out->truncated = 0;
}

/* The memory hierarchy's chain: v1, or v2 down to the last level that has the
 * memory controller; empty without CONFIG_MEMCG. */
static __always_inline void fill_memory_chain(struct kn_chain *out, struct task_struct *t)
{
	fill_chain(out, memory_node(t));
}

/* The default (v2) hierarchy's chain: complete on v2, "/" on pure v1. */
static __always_inline void fill_default_chain(struct kn_chain *out, struct task_struct *t)
{
	fill_chain(out, default_node(t));
}

#endif
