/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How connections to each target went, counted, and which ones are slow. Part of
 * sockfail.bpf.c, whose maps and helpers it uses. */
#ifndef KERNOSIS_SOCKFAIL_OUTCOME_BPF_H
#define KERNOSIS_SOCKFAIL_OUTCOME_BPF_H

/* Of all connections to a target that have ended, and of the latest of them. The
 * figures of the latest are written one by one: of two that end at the same time on
 * two CPUs they may be mixed. */
struct target_outcome {
	__u64 succeeded;
	__u64 failed;
	__u64 start_ns; /* of the connect(), CLOCK_BOOTTIME */
	__u64 took_ns;	/* until it failed or was closed */
	__u32 rtt_us;	/* smoothed; 0: it never was established */
	__u32 pad;
};

/* By the target's id. User space makes the entries and removes them: there is one
 * for each target. 10,000 of them, 1.2 MiB. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 10000);
	__type(key, __u32);
	__type(value, struct target_outcome);
} outcomes SEC(".maps");

static __always_inline void count_outcome(__u32 target, __u64 start_ns, bool failed, __u32 rtt_us)
{
	struct target_outcome *o = bpf_map_lookup_elem(&outcomes, &target);

	if (!o)
		return; /* not a target any more */
	if (failed)
		__sync_fetch_and_add(&o->failed, 1);
	else
		__sync_fetch_and_add(&o->succeeded, 1);
	if (start_ns < o->start_ns)
		return;
	o->start_ns = start_ns;
	o->took_ns = bpf_ktime_get_boot_ns() - start_ns;
	o->rtt_us = rtt_us;
}

/* After how long an answer that is not complete is slow, of a connection to the
 * target that this process opens; 0: never. */
static __always_inline __u32 slow_after(const struct target *t, const struct config *cfg,
					const char *comm)
{
	const __u64 *own = (const void *)comm;

	if (!t->slow_ms || !t->openers)
		return t->slow_ms;
#pragma unroll
	for (int i = 0; i < OPENERS; i++) {
		const __u64 *name = (const void *)cfg->openers[i];

		if (t->openers >> i & 1 && name[0] == own[0] && name[1] == own[1])
			return t->slow_ms;
	}
	return 0;
}

/*
 * An answer began to come, and the opener closed when the time was over: it had
 * waited for the rest. Not slow: who closes earlier has what it wanted; where the
 * peer closed first the answer was complete. Of a connection that was half closed
 * nobody can tell who closed first.
 */
static __always_inline bool is_slow(const struct conn *c, __u64 received, int old, int new)
{
	return c->slow_ms && received && old == TCP_ESTABLISHED &&
	       (new == TCP_FIN_WAIT1 || new == TCP_CLOSE) &&
	       bpf_ktime_get_boot_ns() - c->start_ns >= (__u64)c->slow_ms * 1000000;
}

#endif
