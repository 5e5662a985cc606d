/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The way out of the kernel, the same for each stem: a ring buffer of its own
 * (so that a flood of one stem can't push out another's records), a per-CPU
 * count of records that found it full, and the canary.
 *
 * A stem defines before it includes this file:
 *   RING_BYTES   a power of two and a multiple of 64 KiB, the page size of
 *                some arm64 kernels
 *   RING_RECORD  its record struct, or a union of several
 */
#ifndef KERNOSIS_RING_BPF_H
#define KERNOSIS_RING_BPF_H

#ifndef RING_BYTES
#error "define RING_BYTES and RING_RECORD first"
#endif
_Static_assert((RING_BYTES & (RING_BYTES - 1)) == 0 && RING_BYTES % 65536 == 0, "RING_BYTES");

/* The value type keeps the records' layout in the object's BTF, where the test
 * of Go's mirrors finds it. */
union kn_records {
	struct kn_canary canary;
	RING_RECORD record;
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, RING_BYTES);
	__type(value, union kn_records);
} events SEC(".maps");

/* Element 0: records that were not written because the ring was full. The others
 * are the agent's own notes (health.go): the map is pinned, so they outlive it. 32
 * bytes a CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u64);
} lost SEC(".maps");

static __always_inline void count_lost(void)
{
	__u32 zero = 0;
	__u64 *n = bpf_map_lookup_elem(&lost, &zero);

	/* Atomic: an interrupt on this CPU may count between load and store. */
	if (n)
		__sync_fetch_and_add(n, 1);
}

static __always_inline void fill_header(struct kn_header *h, __u16 kind, __u32 size)
{
	h->version = KN_WIRE_VERSION;
	h->kind = kind;
	h->size = size;
	h->boot_ns = bpf_ktime_get_boot_ns();
	h->cpu = bpf_get_smp_processor_id();
	h->pad = 0;
}

/* reserve_record returns room for *rec in the ring with its header filled, or
 * NULL after counting the loss. The memory is NOT zeroed. */
#define reserve_record(rec_type, kind)                                                     \
	({                                                                                 \
		rec_type *__r = bpf_ringbuf_reserve(&events, sizeof(rec_type), 0);         \
		if (__r)                                                                   \
			fill_header((struct kn_header *)__r, kind, sizeof(rec_type));      \
		else                                                                       \
			count_lost();                                                      \
		__r;                                                                       \
	})

/* Never attached: run by the agent (BPF_PROG_TEST_RUN) to prove that a record
 * of this stem reaches the engine, and to compare jiffies with the clock. */
SEC("raw_tp/kernosis_canary")
int canary(__u64 *ctx)
{
	struct kn_canary *r = reserve_record(struct kn_canary, KN_CANARY);

	if (!r)
		return 0;
	r->nonce = ctx[0];
	r->jiffies = bpf_jiffies64();
	bpf_ringbuf_submit(r, 0);
	return 0;
}

#endif
