/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The packets of sockfail: what was dropped, and which ICMP errors were sent. Part
 * of sockfail.bpf.c, whose maps and helpers it uses. */
#ifndef KERNOSIS_SOCKFAIL_PACKET_BPF_H
#define KERNOSIS_SOCKFAIL_PACKET_BPF_H

/* The target that a packet's end belongs to. Which targets there are of any port, the
 * classes of openers tell as well: they differ in the namespace alone. */
static __always_inline bool is_target(const struct config *cfg, const struct target_key *end)
{
	/* The ones without (i & 2). */
	return watches_port(cfg, end->port) && find_target(end, cfg->packet_classes & 0x33);
}

/*
 * mark_of returns the mark of the connection that a packet belongs to, if it
 * goes to or comes from a target; new ones are empty. The packet's network
 * header is what counts: neither skb->sk nor the transport header need be set.
 */
static __always_inline struct mark *mark_of(struct sk_buff *skb)
{
	__u32 zero = 0, l4 = 40;
	struct config *cfg = bpf_map_lookup_elem(&config, &zero);
	struct target_key k = {};
	struct mark empty = {}, *m;
	__u8 b[40], tcp[14], syn;
	struct tuple t = {}, s;
	unsigned char *ip;
	struct sock *sk;

	if (!cfg || !cfg->packet_classes)
		return NULL;
	ip = BPF_CORE_READ(skb, head) + BPF_CORE_READ(skb, network_header);
	if (bpf_probe_read_kernel(b, sizeof(b), ip))
		return NULL;
	if (b[0] >> 4 == 4 && b[9] == IPPROTO_TCP) {
		l4 = (b[0] & 15) * 4;
		map_v4(t.saddr, *(__be32 *)(b + 12));
		map_v4(t.daddr, *(__be32 *)(b + 16));
	} else if (b[0] >> 4 == 6 && b[6] == IPPROTO_TCP) {
		__builtin_memcpy(t.saddr, b + 8, 16);
		__builtin_memcpy(t.daddr, b + 24, 16);
	} else {
		return NULL;
	}
	if (bpf_probe_read_kernel(tcp, sizeof(tcp), ip + l4))
		return NULL;
	t.sport = tcp[0] << 8 | tcp[1];
	t.dport = tcp[2] << 8 | tcp[3];

	/* As seen from the opener: an answer's source is the target. Without SYN
	 * either end may be. */
	k.netns = ANY_SIDE;
	__builtin_memcpy(k.addr, t.daddr, 16);
	k.port = t.dport;
	syn = tcp[13] & (TCP_FLAG_SYN | TCP_FLAG_ACK);
	if (syn == (TCP_FLAG_SYN | TCP_FLAG_ACK) || !is_target(cfg, &k)) {
		if (syn == TCP_FLAG_SYN)
			return NULL;
		s = t;
		__builtin_memcpy(t.saddr, s.daddr, 16);
		__builtin_memcpy(t.daddr, s.saddr, 16);
		t.sport = s.dport;
		t.dport = s.sport;
		__builtin_memcpy(k.addr, t.daddr, 16);
		k.port = t.dport;
		if (!is_target(cfg, &k))
			return NULL;
	}
	t.netns = 0;
	if (is_loopback(t.daddr)) {
		/* Before routing there is no device, on the way in no socket. */
		sk = BPF_CORE_READ(skb, sk);
		t.netns = sk ? netns_of(sk) : BPF_CORE_READ(skb, dev, nd_net.net, ns.inum);
	}
	m = bpf_map_lookup_elem(&marks, &t);
	if (!m) {
		bpf_map_update_elem(&marks, &t, &empty, BPF_NOEXIST);
		m = bpf_map_lookup_elem(&marks, &t);
	}
	if (m)
		m->boot_ns = bpf_ktime_get_boot_ns();
	return m;
}

SEC("raw_tp/kfree_skb")
int drop_raw(__u64 *ctx)
{
	__u32 reason = ctx[2];
	struct mark *m;

	/* The reasons of subsystems have a number in their upper half. */
	if (reason < 256 && !(drop_reasons[reason / 64 & 3] >> (reason % 64) & 1))
		return 0;
	m = mark_of((void *)ctx[0]);
	if (m) {
		m->location = ctx[1];
		m->reason = reason;
		m->drops++;
	}
	return 0;
}

SEC("raw_tp/icmp_send")
int icmp_raw(__u64 *ctx)
{
	int type = ctx[1], code = ctx[2];
	struct mark *m;

	if (type != ICMP_TIME_EXCEEDED && type != ICMP_PARAMETERPROB &&
	    (type != ICMP_DEST_UNREACH || code == ICMP_FRAG_NEEDED))
		return 0;
	m = mark_of((void *)ctx[0]);
	if (m) {
		m->icmp = 1;
		m->icmp_type = type;
		m->icmp_code = code;
	}
	return 0;
}

#endif
