//go:build ignore
// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * sockfail: connections to targets (probe targets) that fail, one record each.
 *
 * Hooks: inet_sock_set_state follows a connection from SYN_SENT, in the context
 * of the task that opens it, to its end. So does a sock_ops program, because the
 * kernel skips the other one at times (sockfail_follow.bpf.h): whichever comes
 * first acts. tcp_retransmit_skb tells that the SYN
 * has no answer while it is still waited for; tcp_receive_reset that the end was
 * a reset. kfree_skb (with a reason, v5.17) and icmp_send tell what became
 * of packets; they know no socket that helps, so what they see is kept by tuple
 * until the connection's end. A connect() that finds no route never reaches
 * SYN_SENT: cgroup/connect4 and 6 note each connect() to a target, SYN_SENT
 * crosses it out, and what stays was never sent: tcp_v4_connect's return
 * (fexit, kretprobe) tells so at once, else user space finds it.
 *
 * Cost without targets: a comparison of states, and on the ones of interest an
 * array look-up; the packet and connect hooks are not attached. With targets the
 * same for connections and packets of ports that no target has
 * (sockfail_filter.bpf.h), once a packet's headers are read. To a port that
 * one has: a few reads and 1 to 8 look-ups when a connection opens (one for each
 * class of wildcard in use), up to 8 for a packet. Kernels 5.10 and later.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_tracing.h>

#define RING_BYTES (1 << 19) /* 340 failures that nobody has read yet */
#define RING_RECORD struct kn_sockfail
#include "sockfail.h"
#include "ring.bpf.h"
#include "core_compat.bpf.h"
#include "subject.bpf.h"
#include "sockfail_kernel.bpf.h"

/* Which drop reasons (below 256) tell of a fault; the others are part of TCP's
 * or the socket's normal life. Set from the kernel's own enum. */
const volatile __u64 drop_reasons[4];

/* What is watched. Fields that stand for "any" are 0. */
struct target_key {
	__u8 addr[16]; /* IPv4 as ::ffff:a.b.c.d */
	__u32 netns;   /* inode, of the opener; ANY_SIDE: for packets */
	__u16 port;    /* host order */
	__u16 pad;
};

/* A packet may be seen in any namespace on its way, so user space puts each
 * target in a second time, with this for a netns. */
#define ANY_SIDE 0xffffffff

struct target {
	__u32 id;
	__u32 slow_ms; /* after which answers are slow; 0: never */
	__u32 openers; /* bit i: those of config.openers[i] alone; 0: of anybody */
	__u32 pad;
};

/* 10,000 targets, each for sockets and for packets; 2.2 MiB. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 20000);
	__type(key, struct target_key);
	__type(value, struct target);
} targets SEC(".maps");

/* What else the agent knows of a target, by its id, for the agent that is started
 * after it; no program reads it. Those that are there take 0.3 KiB each. */
struct target_label {
	__u32 target_netns;
	char name[204]; /* filled up with NUL */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 10000);
	__type(key, __u32);
	__type(value, struct target_label);
} labels SEC(".maps");

#define OPENERS 8

/* Bit i of classes: there are targets in which port (i & 1), netns (i & 2) and
 * address (i & 4) are any. */
struct config {
	__u32 classes;        /* by the opener's netns */
	__u32 packet_classes; /* netns is ANY_SIDE, bit 1 unused */
	char openers[OPENERS][16]; /* names of processes, filled up with NUL */
	__u64 ports[65536 / 64];   /* bit by bit: whether a target has it */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct config);
} config SEC(".maps");

/* Never a socket's address alone: it is used again. */
struct conn_key {
	__u64 sk;
	__u32 netns;
	__u32 dport;
};

struct conn {
	struct kn_task opener;
	__u64 start_ns;
	__u64 memory_id;
	__u64 dfl_id;
	__u32 target;
	__u32 segs_out; /* before the connect */
	__u32 err;      /* as reported */
	__u32 flags;    /* KN_SOCK_*, HALF_CLOSED */
	__u8 icmp_origin;
	__u8 icmp_type;
	__u8 icmp_code;
	__u8 pad;
	__u32 slow_ms; /* the target's, if it is for this opener */
};

#define HALF_CLOSED (1 << 16) /* we shut down sending, and may still receive */
#define TOLD (1 << 17)	      /* a record was written: one a connection */

/* Connections to targets, from SYN_SENT until they are judged. LRU, so that an
 * entry that was left over because the kernel skipped a program can't stay; the
 * oldest go first when there are more than 8192, about 1.4 MiB. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct conn_key);
	__type(value, struct conn);
} conns SEC(".maps");

/* connect() calls to targets that have not reached SYN_SENT, by thread. Same
 * reasons; 1024 threads between the two, 0.2 MiB. */
struct pending {
	struct kn_task opener;
	__u64 start_ns;
	__u64 memory_id;
	__u64 dfl_id;
	__u8 addr[16];
	__u32 netns;
	__u32 target;
	__u16 port;
	__u16 pad[3];
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct pending);
} pending SEC(".maps");

/* Where the last connection failed, to tell the first success after that;
 * 4096 destinations, 0.4 MiB. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct target_key);
	__type(value, __u32);
} failing SEC(".maps");

struct tuple {
	__u8 saddr[16];
	__u8 daddr[16];
	__u16 sport;
	__u16 dport;
	__u32 netns; /* of loopback addresses; others are the node's to give once */
};

/* What became of packets between the two ends, from the opener's point of view. */
struct mark {
	__u64 boot_ns;
	__u64 location;
	__u32 reason;
	__u32 drops;
	__u8 icmp; /* icmp_* are set */
	__u8 icmp_type;
	__u8 icmp_code;
	__u8 pad[5];
};

/* 2048 connections with packets lost, 0.3 MiB. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 2048);
	__type(key, struct tuple);
	__type(value, struct mark);
} marks SEC(".maps");

/* Openers' control groups, read once for each pair of leaf groups; 256 of them,
 * 0.4 MiB. The entry with the key 0, 0 is never filled in. */
struct group_key {
	__u64 memory;
	__u64 dfl;
};

struct group {
	__u64 ready;
	struct kn_chain memory;
	struct kn_chain dfl;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 256);
	__type(key, struct group_key);
	__type(value, struct group);
} groups SEC(".maps");

/* An empty group to make entries of: one doesn't fit on the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct group);
} no_group SEC(".maps");

#include "sockfail_filter.bpf.h"
#include "sockfail_outcome.bpf.h"

static __always_inline struct config *active_config(void)
{
	__u32 zero = 0;
	struct config *c = bpf_map_lookup_elem(&config, &zero);

	return c && c->classes ? c : NULL;
}

static __always_inline void map_v4(__u8 *addr, __be32 v4)
{
	__builtin_memset(addr, 0, 10);
	addr[10] = addr[11] = 0xff;
	__builtin_memcpy(addr + 12, &v4, 4);
}

/* 127.0.0.0/8 and ::1: addresses that each namespace has. */
static __always_inline bool is_loopback(const __u8 *addr)
{
	return addr[10] == 0xff ? addr[12] == 127 : !addr[0] && addr[15] == 1;
}

static __always_inline __u32 netns_of(struct sock *sk)
{
	return BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
}

static __always_inline bool is_ipv6(struct sock *sk) /* none is without CONFIG_IPV6 */
{
	return bpf_core_field_exists(sk->__sk_common.skc_v6_daddr) &&
	       BPF_CORE_READ(sk, __sk_common.skc_family) == AF_INET6;
}

/* The destination as a key. A v4-mapped IPv6 address is the IPv4 one. */
static __always_inline void fill_destination(struct target_key *k, struct sock *sk)
{
	k->netns = netns_of(sk);
	k->port = bpf_ntohs(BPF_CORE_READ(sk, __sk_common.skc_dport));
	k->pad = 0;
	if (is_ipv6(sk))
		BPF_CORE_READ_INTO(&k->addr, sk, __sk_common.skc_v6_daddr);
	else
		map_v4(k->addr, BPF_CORE_READ(sk, __sk_common.skc_daddr));
}

static __always_inline void fill_source(__u8 *addr, struct sock *sk)
{
	if (is_ipv6(sk))
		bpf_core_read(addr, 16, &sk->__sk_common.skc_v6_rcv_saddr);
	else
		map_v4(addr, BPF_CORE_READ(sk, __sk_common.skc_rcv_saddr));
}

/* The target that the destination belongs to: the exact one, else the one with
 * the fewest "any". */
static __always_inline struct target *find_target(const struct target_key *dst, __u32 classes)
{
#pragma unroll
	for (int i = 0; i < 8; i++) {
		struct target_key k = *dst;
		struct target *t;

		if (!(classes & (1 << i)))
			continue;
		if (i & 1)
			k.port = 0;
		if (i & 2)
			k.netns = 0;
		if (i & 4)
			__builtin_memset(k.addr, 0, sizeof(k.addr));
		t = bpf_map_lookup_elem(&targets, &k);
		if (t)
			return t;
	}
	return NULL;
}

/* The thread that connects, under the name of its process: a thread may have one of
 * its own, and who asks for kubelet's connections means the process. */
static __always_inline void fill_opener(struct kn_task *out, struct task_struct *t)
{
	struct task_struct___leader *leader = (void *)t;

	fill_task(out, t);
	leader = BPF_CORE_READ(leader, group_leader);
	__builtin_memset(out->comm, 0, sizeof(out->comm)); /* no kernel clears the rest */
	BPF_CORE_READ_STR_INTO(&out->comm, leader, comm);
}

static __always_inline void note_groups(struct task_struct *task, __u64 *memory, __u64 *dfl)
{
	struct kernfs_node *mem = memory_node(task), *kn = default_node(task);
	struct group_key k = {.memory = BPF_CORE_READ(mem, id), .dfl = BPF_CORE_READ(kn, id)};
	struct group *g = bpf_map_lookup_elem(&groups, &k);
	__u32 zero = 0;

	*memory = k.memory;
	*dfl = k.dfl;
	if (g)
		return;
	g = bpf_map_lookup_elem(&no_group, &zero);
	if (!g || bpf_map_update_elem(&groups, &k, g, BPF_NOEXIST))
		return;
	g = bpf_map_lookup_elem(&groups, &k);
	if (!g)
		return;
	fill_memory_chain(&g->memory, task);
	fill_default_chain(&g->dfl, task);
	g->ready = 1;
}

static __always_inline void fill_groups(struct kn_sockfail *r, __u64 memory, __u64 dfl)
{
	struct group_key k = {.memory = memory, .dfl = dfl};
	struct group *g = bpf_map_lookup_elem(&groups, &k);

	r->memory_id = memory;
	r->dfl_id = dfl;
	no_chain(&r->memory);
	no_chain(&r->dfl);
	if (g && g->ready) {
		bpf_probe_read_kernel(&r->memory, sizeof(r->memory), &g->memory);
		bpf_probe_read_kernel(&r->dfl, sizeof(r->dfl), &g->dfl);
	}
}

/* A connect() that never became a packet. */
static __always_inline void emit_never_sent(struct pending *p, __u32 err)
{
	struct target_key dst = {.netns = p->netns, .port = p->port};
	struct kn_sockfail *r;

	__builtin_memcpy(dst.addr, p->addr, sizeof(dst.addr));
	bpf_map_update_elem(&failing, &dst, &p->target, BPF_ANY);
	count_outcome(p->target, p->start_ns, true, 0);
	r = reserve_record(struct kn_sockfail, KN_SOCKFAIL);
	if (!r)
		return;
	r->opener = p->opener;
	__builtin_memset(r->saddr, 0, sizeof(r->saddr));
	__builtin_memcpy(r->daddr, p->addr, sizeof(r->daddr));
	r->sport = 0;
	r->dport = p->port;
	r->netns = p->netns;
	r->target = p->target;
	r->flags = KN_SOCK_NO_STATE | KN_SOCK_NOT_SENT;
	r->old_state = r->new_state = TCP_CLOSE;
	r->start_ns = p->start_ns;
	r->bytes_acked = r->bytes_received = r->unacked = 0;
	r->drop_location = 0;
	r->drop_reason = r->drops = r->retransmits = 0;
	r->err = err;
	r->err_soft = 0;
	r->rtt_us = r->limit_ms = 0;
	r->icmp_type = r->icmp_code = 0;
	r->icmp_origin = r->pad[0] = r->pad[1] = 0;
	fill_groups(r, p->memory_id, p->dfl_id);
	bpf_ringbuf_submit(r, 0);
}

/* What a connection's end shows of it. */
struct outcome {
	__u64 acked;
	__u64 received;
	__u32 unacked;
	__u32 err;
	__u32 rtt_us;
};

static __always_inline void emit(__u16 kind, struct sock *sk, const struct conn *c,
				 const struct target_key *dst, const struct outcome *o,
				 __u32 flags, int old, int new)
{
	struct inet_sock *inet = (void *)sk;
	struct tcp_sock *tp = (void *)sk;
	struct tuple t;
	struct mark *m;
	struct kn_sockfail *r = reserve_record(struct kn_sockfail, kind);

	if (!r)
		return;
	fill_source(t.saddr, sk);
	__builtin_memcpy(t.daddr, dst->addr, sizeof(t.daddr));
	/* inet_num is gone by now, inet_sport stays. */
	t.sport = bpf_ntohs(BPF_CORE_READ(inet, inet_sport));
	t.dport = dst->port;
	t.netns = is_loopback(t.daddr) ? dst->netns : 0;

	r->opener = c->opener;
	__builtin_memcpy(r->saddr, t.saddr, sizeof(r->saddr));
	__builtin_memcpy(r->daddr, t.daddr, sizeof(r->daddr));
	r->sport = t.sport;
	r->dport = t.dport;
	r->netns = dst->netns;
	r->target = c->target;
	r->old_state = old;
	r->new_state = new;
	r->start_ns = c->start_ns;
	r->bytes_acked = o->acked;
	r->bytes_received = o->received;
	r->unacked = o->unacked;
	r->retransmits = BPF_CORE_READ(tp, total_retrans);
	r->err = o->err;
	r->rtt_us = o->rtt_us;
	r->limit_ms = c->slow_ms;
	r->err_soft = BPF_CORE_READ(sk, sk_err_soft);
	r->drop_location = 0;
	r->drop_reason = r->drops = 0;
	r->icmp_type = r->icmp_code = 0;
	r->icmp_origin = r->pad[0] = r->pad[1] = 0;

	m = bpf_map_lookup_elem(&marks, &t);
	if (m) {
		if (m->boot_ns >= c->start_ns) {
			if (m->drops) {
				flags |= KN_SOCK_DROPPED;
				r->drop_location = m->location;
				r->drop_reason = m->reason;
				r->drops = m->drops;
			}
			if (m->icmp) {
				flags |= KN_SOCK_ICMP;
				r->icmp_type = m->icmp_type;
				r->icmp_code = m->icmp_code;
			}
		}
		bpf_map_delete_elem(&marks, &t);
	}
	if (c->icmp_origin) {
		flags |= KN_SOCK_ICMP;
		r->icmp_origin = c->icmp_origin;
		r->icmp_type = c->icmp_type;
		r->icmp_code = c->icmp_code;
	}
	r->flags = flags & 0xff;
	fill_groups(r, c->memory_id, c->dfl_id);
	bpf_ringbuf_submit(r, 0);
}

static __always_inline void handle_open(struct sock *sk, struct config *cfg)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct tcp_sock *tp = (void *)sk;
	struct target_key dst;
	struct conn_key key = {};
	struct conn c = {};
	struct target *t;
	__u32 tid;

	/* Whatever the address is by now: other programs may have changed it. */
	if (maybe_pending()) {
		tid = BPF_CORE_READ(task, pid);
		forget_pending(&tid);
	}
	if (!watches_port(cfg, bpf_ntohs(BPF_CORE_READ(sk, __sk_common.skc_dport))))
		return;
	/* MPTCP reports its own socket's states beside its subflows'. */
	if (BPF_CORE_READ(sk, sk_protocol) != IPPROTO_TCP)
		return;
	fill_destination(&dst, sk);
	t = find_target(&dst, cfg->classes);
	if (!t)
		return;
	c.target = t->id;
	c.start_ns = bpf_ktime_get_boot_ns();
	c.segs_out = BPF_CORE_READ(tp, segs_out);
	fill_opener(&c.opener, task);
	c.slow_ms = slow_after(t, cfg, c.opener.comm);
	note_groups(task, &c.memory_id, &c.dfl_id);
	key.sk = (__u64)sk;
	key.netns = dst.netns;
	key.dport = dst.port;
	remember_conn(sk, &key, &c);
}

/*
 * A connection that was followed leaves SYN_SENT or ESTABLISHED, or is at its
 * end after we had shut down sending. What counts as failed:
 * - it left SYN_SENT for anything but ESTABLISHED;
 * - a reset or another error ended it;
 * - we closed for good, or the peer did, when data was sent and none came back;
 * - we closed when the answer had taken too long (is_slow).
 */
static __always_inline void handle_end(struct sock *sk, int old, int new)
{
	struct tcp_sock *tp = (void *)sk;
	struct outcome o = {};
	struct target_key dst;
	struct conn_key key = {};
	struct conn *c;
	__u32 flags, *was;
	__u64 none = 0;
	bool failed, sent, broken;

	key.sk = (__u64)sk;
	key.netns = netns_of(sk);
	key.dport = bpf_ntohs(BPF_CORE_READ(sk, __sk_common.skc_dport));
	c = bpf_map_lookup_elem(&conns, &key);
	if (!c)
		return;
	if (old == TCP_SYN_SENT && new != TCP_CLOSE) {
		c->flags |= KN_SOCK_ESTABLISHED;
		return;
	}
	flags = c->flags;
	if (old != TCP_SYN_SENT && old != TCP_ESTABLISHED && !(flags & HALF_CLOSED))
		goto forget;

	o.err = BPF_CORE_READ(sk, sk_err);
	if (!o.err)
		o.err = c->err;
	if (old == TCP_SYN_SENT) {
		failed = true;
		if (BPF_CORE_READ(tp, segs_out) == c->segs_out)
			flags |= KN_SOCK_NOT_SENT;
	} else {
		o.acked = BPF_CORE_READ(tp, bytes_acked);
		o.received = BPF_CORE_READ(tp, bytes_received);
		o.unacked = BPF_CORE_READ(tp, write_seq) - BPF_CORE_READ(tp, snd_una);
		if (new == TCP_CLOSE_WAIT) {
			/* The FIN is in already. */
			flags |= KN_SOCK_PEER_CLOSED;
			if (o.received)
				o.received--;
		}
		/* bytes_acked is 1 after the handshake. */
		sent = o.acked > 1 || o.unacked;
		if (new == TCP_FIN_WAIT1 && sent &&
		    BPF_CORE_READ(sk, sk_shutdown) != SHUTDOWN_MASK) {
			/* shutdown(SHUT_WR), not close(): the answer may follow. */
			c->flags |= HALF_CLOSED;
			return;
		}
		if (flags & HALF_CLOSED) {
			sent = true;
			if (BPF_CORE_READ(sk, sk_shutdown) & RCV_SHUTDOWN)
				none = 1; /* the peer's FIN counts too, if it came */
		}
		o.rtt_us = BPF_CORE_READ(tp, srtt_us) >> 3;
		broken = (flags & KN_SOCK_RESET) || o.err;
		if (!broken && is_slow(c, o.received, old, new))
			flags |= KN_SOCK_SLOW;
		failed = broken || flags & KN_SOCK_SLOW || (sent && o.received <= none);
	}

	fill_destination(&dst, sk);
	was = bpf_map_lookup_elem(&failing, &dst);
	if (failed && flags & TOLD)
		goto forget;
	count_outcome(c->target, c->start_ns, failed, o.rtt_us);
	if (failed) {
		if (!was || *was != c->target)
			bpf_map_update_elem(&failing, &dst, &c->target, BPF_ANY);
		emit(KN_SOCKFAIL, sk, c, &dst, &o, flags, old, new);
	} else if (was) {
		bpf_map_delete_elem(&failing, &dst);
		emit(KN_SOCKFAIL_RECOVERED, sk, c, &dst, &o, flags, old, new);
	}
forget:
	forget_conn(sk, &key);
}

/* Called twice for a change where both programs are attached: what the first has done
 * makes the second do nothing. */
static __always_inline void handle_state(struct sock *sk, int old, int new)
{
	bool opens = old == TCP_CLOSE && new == TCP_SYN_SENT;
	struct config *cfg;

	if (!opens && old != TCP_SYN_SENT && old != TCP_ESTABLISHED &&
	    (new != TCP_CLOSE || old == TCP_LISTEN || old == TCP_SYN_RECV))
		return;
	if (!opens && !maybe_followed(sk))
		return;
	cfg = active_config();
	if (!cfg)
		return;
	if (opens)
		handle_open(sk, cfg);
	else
		handle_end(sk, old, new);
}

SEC("raw_tp/inet_sock_set_state")
int state_raw(__u64 *ctx)
{
	handle_state((struct sock *)ctx[0], ctx[1], ctx[2]);
	return 0;
}

static __always_inline struct conn *find_conn(struct sock *sk)
{
	struct conn_key key = {};

	if (!maybe_followed(sk) || !active_config() ||
	    BPF_CORE_READ(sk, sk_protocol) != IPPROTO_TCP)
		return NULL;
	key.sk = (__u64)sk;
	key.netns = netns_of(sk);
	key.dport = bpf_ntohs(BPF_CORE_READ(sk, __sk_common.skc_dport));
	return bpf_map_lookup_elem(&conns, &key);
}

SEC("raw_tp/tcp_receive_reset")
int reset_raw(__u64 *ctx)
{
	struct conn *c = find_conn((void *)ctx[0]);

	if (c)
		c->flags |= KN_SOCK_RESET;
	return 0;
}

/*
 * The first SYN stayed without an answer for the initial time-out of one
 * second. Waiting for the connection's end would be too late to look why: Go's
 * HTTP client, and so kubelet, gives a probe up after its time-out but leaves
 * the connect() to run until the kernel's last SYN, two minutes later.
 */
SEC("raw_tp/tcp_retransmit_skb")
int resend_raw(__u64 *ctx)
{
	struct sock *sk = (void *)ctx[0];
	struct outcome o = {};
	struct target_key dst;
	struct conn *c;

	c = find_conn(sk);
	if (!c || c->flags & TOLD || BPF_CORE_READ(sk, __sk_common.skc_state) != TCP_SYN_SENT)
		return 0;
	c->flags |= TOLD;
	count_outcome(c->target, c->start_ns, true, 0);
	o.err = c->err;
	fill_destination(&dst, sk);
	bpf_map_update_elem(&failing, &dst, &c->target, BPF_ANY);
	emit(KN_SOCKFAIL, sk, c, &dst, &o, c->flags, TCP_SYN_SENT, TCP_SYN_SENT);
	return 0;
}

/*
 * An ICMP error in SYN_SENT is queued for the socket (v5.9, 45af29ca761c) and
 * reported before sk_err or sk_err_soft is set; SO_ERROR may take those back
 * before the socket closes. skb is what was queued, or NULL.
 */
static __always_inline int handle_error(struct sock *sk, struct sk_buff *skb)
{
	struct conn *c = find_conn(sk);
	struct sock_exterr_skb *e;
	__u32 err;
	__u8 origin;

	if (!c)
		return 0;
	err = BPF_CORE_READ(sk, sk_err);
	if (!err && !skb && BPF_CORE_READ(sk, sk_error_queue.qlen))
		skb = BPF_CORE_READ(sk, sk_error_queue.prev);
	if (!err && skb) {
		e = (void *)skb + bpf_core_field_offset(skb->cb);
		origin = BPF_CORE_READ(e, ee.ee_origin);
		if (origin == SO_EE_ORIGIN_ICMP || origin == SO_EE_ORIGIN_ICMP6) {
			err = BPF_CORE_READ(e, ee.ee_errno);
			c->icmp_origin = origin;
			c->icmp_type = BPF_CORE_READ(e, ee.ee_type);
			c->icmp_code = BPF_CORE_READ(e, ee.ee_code);
		}
	}
	if (err)
		c->err = err;
	return 0;
}

SEC("raw_tp/inet_sk_error_report")
int error_raw(__u64 *ctx)
{
	return handle_error((void *)ctx[0], NULL);
}

SEC("fentry/sock_queue_err_skb")
int BPF_PROG(error_fentry, struct sock *sk, struct sk_buff *skb)
{
	struct sock *volatile typed = sk;
	struct sock *number = NULL;

	bpf_probe_read_kernel(&number, sizeof(number), (void *)&typed); /* see conn_hint */
	return handle_error(number, skb);
}

SEC("kprobe/sock_queue_err_skb")
int error_kp(void *ctx)
{
	struct pt_regs___x86_si *x86 = ctx;
	struct pt_regs___arm64 *arm64 = ctx;
	struct sk_buff *skb = NULL;

	if (bpf_core_field_exists(x86->si))
		skb = (void *)BPF_CORE_READ(x86, si);
	else if (bpf_core_field_exists(arm64->regs))
		skb = (void *)BPF_CORE_READ(arm64, regs[1]);
	return handle_error((void *)first_argument(ctx), skb);
}

#include "sockfail_packet.bpf.h"
#include "sockfail_connect.bpf.h"
#include "sockfail_follow.bpf.h"

char _license[] SEC("license") = "Dual BSD/GPL";
