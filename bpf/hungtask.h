/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef KERNOSIS_HUNGTASK_H
#define KERNOSIS_HUNGTASK_H

#include "wire.h"

#define KN_HUNG_STACK 32

enum kn_hung_detector {
	KN_HUNG_KHUNGTASKD = 1,
	KN_HUNG_POLL = 2,
};

enum kn_hung_lock {
	KN_LOCK_NONE, /* the kernel recorded none */
	KN_LOCK_MUTEX,
	KN_LOCK_SEMAPHORE,
	KN_LOCK_RWSEM_READ,
	KN_LOCK_RWSEM_WRITE,
};

struct kn_hungtask {
	struct kn_header h;
	struct kn_task task;
	struct kn_task holder; /* pid 0: not known */
	__u64 lock_addr;       /* 0: no recorded lock */
	__u64 blocked_ns;      /* a lower bound, suspend left out */
	__u64 called;          /* function that the innermost frame has called; 0: not known */
	__u8 detector;         /* enum kn_hung_detector */
	__u8 lock;             /* enum kn_hung_lock: what the task waits for */
	__u8 holder_hint;      /* the holder is only possibly the holder */
	__u8 in_iowait;
	__u32 stack_depth;
	__u64 stack[KN_HUNG_STACK]; /* of the hung task, innermost first */
	struct kn_chain memory;
	struct kn_chain dfl;
};
_Static_assert(sizeof(struct kn_hungtask) ==
		       24 + 2 * 40 + 3 * 8 + 8 + 8 * KN_HUNG_STACK + 2 * sizeof(struct kn_chain),
	       "wire");

/* A reported task runs again, exits, or another has its pid. */
struct kn_hungtask_resumed {
	struct kn_header h;
	struct kn_task task;
	__u64 blocked_ns; /* when it was last seen blocked */
	__u8 detector;    /* that reported it */
	__u8 exited;      /* then the chains may be empty */
	__u8 pad[6];
	struct kn_chain memory;
	struct kn_chain dfl;
};
_Static_assert(sizeof(struct kn_hungtask_resumed) == 24 + 40 + 8 + 8 + 2 * sizeof(struct kn_chain),
	       "wire");

/* One uninterruptible sleep: from being seen in it first until the task is seen
 * out of it. Value of the map "blocked". */
struct kn_hungtask_sleep {
	struct kn_task task;
	__u64 switches; /* voluntary ones at its beginning: unchanged while asleep */
	__u64 wait;	/* what it waits for, and what I/O the task did before; 0: not for I/O */
	__u64 since_ns; /* CLOCK_MONOTONIC, as is seen_ns: a suspended machine hangs nobody */
	__u64 seen_ns;
	__u32 generation; /* of the walk that visited the task last */
	__u8 reported;    /* 0, or the detector that did */
	__u8 woken;       /* the last walk met it awake, or about to sleep: it may wait on */
	__u16 run;        /* of the agent to which it was reported last, as in the settings */
};
_Static_assert(sizeof(struct kn_hungtask_sleep) == 40 + 4 * 8 + 8, "wire");

/* Set by user space before each walk. Value of the map "settings". */
struct kn_hungtask_settings {
	__u64 threshold_ns;      /* of the walk */
	__u64 hang_threshold_ns; /* of khungtaskd's findings; 0: as khungtaskd sees fit */
	__u64 wake_ns;           /* the kernel wakes waiters for I/O each time; 0: it does not */
	__u32 generation;        /* of the walk */
	__u32 full_generation;   /* in which the map "blocked" was full last */
	__u16 run;               /* another one with each start of an agent */
	__u16 pad[3];
};
_Static_assert(sizeof(struct kn_hungtask_settings) == 40, "wire");

#endif
