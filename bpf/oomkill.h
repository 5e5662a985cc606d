/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef KERNOSIS_OOMKILL_H
#define KERNOSIS_OOMKILL_H

#include "wire.h"

#define KN_OOM_STACK 16

enum kn_oom_scope {
	KN_OOM_UNKNOWN,
	KN_OOM_MEMCG,
	KN_OOM_GLOBAL,
};

struct kn_oomkill {
	struct kn_header h;
	struct kn_task victim;
	struct kn_task trigger;
	__u64 total_vm; /* pages, as are all sizes but page_tables */
	__u64 anon;
	__u64 file;
	__u64 shmem;
	__u64 swap;
	__u64 page_tables; /* bytes */
	__u64 limit;       /* of the limiting group; ~0 where none was found */
	__u64 usage;
	__s16 oom_score_adj;
	__u8 rss_approximate;
	__u8 scope;         /* enum kn_oom_scope, as a context program told */
	__u8 victim_partial; /* only the victim's pid is known (5.10 without context) */
	__s8 limit_level;   /* index of the limiting group in memory, or -1 */
	__u16 stack_depth;
	__u64 stack[KN_OOM_STACK]; /* of the triggering task, innermost first */
	struct kn_chain memory;
	struct kn_chain dfl;
};
_Static_assert(sizeof(struct kn_oomkill) == 24 + 2 * 40 + 8 * 8 + 8 + 8 * KN_OOM_STACK +
						   2 * sizeof(struct kn_chain),
	       "wire");

#endif
