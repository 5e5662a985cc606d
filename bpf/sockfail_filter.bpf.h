/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What keeps sockfail cheap for connections that are no target's, which nearly all
 * are: each hook asks here first, and reads the socket and looks it up only where
 * the answer is "perhaps". Part of sockfail.bpf.c, whose maps it uses.
 */
#ifndef KERNOSIS_SOCKFAIL_FILTER_BPF_H
#define KERNOSIS_SOCKFAIL_FILTER_BPF_H

#define CONN_HINTS 4096 /* a power of two, by HINT_SHIFT */
#define HINT_SHIFT 52
#define HINT_FACTOR 0x9E3779B97F4A7C15ULL /* 2^64 by the golden ratio */
#define EEXIST 17

/*
 * How many entries of conns have a socket whose address is hashed to a place, and
 * how many entries pending has. Entries that were pushed out are counted for good:
 * a count may be too high, which costs a look-up, and never too low. 16 KiB.
 */
struct hints {
	__u32 conns[CONN_HINTS];
	__u32 pending;
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct hints);
} hints SEC(".maps");

/* The classes of targets in which the port is any. */
#define ANY_PORT_CLASSES 0xaa

static __always_inline bool watches_port(const struct config *cfg, __u16 port)
{
	return cfg->classes & ANY_PORT_CLASSES || cfg->ports[port >> 6] >> (port & 63) & 1;
}

/* sk is a number to the verifier, which lets nobody calculate with pointers. */
static __always_inline __u32 *conn_hint(struct sock *sk)
{
	__u32 zero = 0;
	struct hints *h = bpf_map_lookup_elem(&hints, &zero);

	return h ? &h->conns[(__u64)sk * HINT_FACTOR >> HINT_SHIFT] : NULL;
}

/* false: no connection of this socket is in conns. */
static __always_inline bool maybe_followed(struct sock *sk)
{
	__u32 *n = conn_hint(sk);

	return n && *(volatile __u32 *)n;
}

static __always_inline void remember_conn(struct sock *sk, const struct conn_key *key,
					  const struct conn *c)
{
	long err = bpf_map_update_elem(&conns, key, c, BPF_NOEXIST);
	__u32 *n;

	/* One whose end was not seen. */
	if (err == -EEXIST)
		bpf_map_update_elem(&conns, key, c, BPF_EXIST);
	if (err)
		return;
	n = conn_hint(sk);
	if (n)
		__sync_fetch_and_add(n, 1);
}

static __always_inline void forget_conn(struct sock *sk, const struct conn_key *key)
{
	__u32 *n;

	if (bpf_map_delete_elem(&conns, key))
		return;
	n = conn_hint(sk);
	if (n)
		__sync_fetch_and_add(n, -1);
}

static __always_inline __u32 *pending_hint(void)
{
	__u32 zero = 0;
	struct hints *h = bpf_map_lookup_elem(&hints, &zero);

	return h ? &h->pending : NULL;
}

/* false: no thread has a connect() in pending. */
static __always_inline bool maybe_pending(void)
{
	__u32 *n = pending_hint();

	return n && *(volatile __u32 *)n;
}

static __always_inline void remember_pending(const __u32 *tid, const struct pending *p)
{
	__u32 *n;

	if (bpf_map_update_elem(&pending, tid, p, BPF_NOEXIST))
		return;
	n = pending_hint();
	if (n)
		__sync_fetch_and_add(n, 1);
}

static __always_inline void forget_pending(const __u32 *tid)
{
	__u32 *n;

	if (bpf_map_delete_elem(&pending, tid))
		return;
	n = pending_hint();
	if (n)
		__sync_fetch_and_add(n, -1);
}

#endif
