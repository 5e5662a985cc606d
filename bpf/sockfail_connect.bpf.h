/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The connect() calls of sockfail that never become a packet. Part of
 * sockfail.bpf.c, whose maps and helpers it uses. */
#ifndef KERNOSIS_SOCKFAIL_CONNECT_BPF_H
#define KERNOSIS_SOCKFAIL_CONNECT_BPF_H

/* Programs of this type may not have all of a tracing program's helpers: what
 * they use is in each kernel's basic set. */
static __always_inline int handle_connect(struct bpf_sock_addr *ctx, struct target_key *dst)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct task_struct___net *task_net = (void *)task;
	struct config *cfg = active_config();
	struct pending p = {}, *before;
	struct target *t;
	bool watched;
	__u32 tid;

	if (!cfg || ctx->protocol != IPPROTO_TCP)
		return 1;
	dst->port = bpf_ntohs(ctx->user_port);
	watched = watches_port(cfg, dst->port);
	if (!watched && !maybe_pending())
		return 1;
	tid = BPF_CORE_READ(task, pid);
	before = bpf_map_lookup_elem(&pending, &tid);
	if (before) {
		emit_never_sent(before, 0);
		forget_pending(&tid);
	}
	if (!watched)
		return 1;
	dst->netns = BPF_CORE_READ(task_net, nsproxy, net_ns, ns.inum);
	t = find_target(dst, cfg->classes);
	if (!t)
		return 1;
	p.target = t->id;
	p.netns = dst->netns;
	p.port = dst->port;
	__builtin_memcpy(p.addr, dst->addr, sizeof(p.addr));
	p.start_ns = bpf_ktime_get_boot_ns();
	fill_opener(&p.opener, task);
	note_groups(task, &p.memory_id, &p.dfl_id);
	remember_pending(&tid, &p);
	return 1;
}

SEC("cgroup/connect4")
int connect4_cg(struct bpf_sock_addr *ctx)
{
	struct target_key dst = {};

	map_v4(dst.addr, ctx->user_ip4);
	return handle_connect(ctx, &dst);
}

SEC("cgroup/connect6")
int connect6_cg(struct bpf_sock_addr *ctx)
{
	struct target_key dst = {};
	__u32 a[4] = {ctx->user_ip6[0], ctx->user_ip6[1], ctx->user_ip6[2], ctx->user_ip6[3]};

	__builtin_memcpy(dst.addr, a, sizeof(a));
	return handle_connect(ctx, &dst);
}

static __always_inline int handle_return(int ret)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct pending *p;
	__u32 tid;

	if (!maybe_pending())
		return 0;
	tid = BPF_CORE_READ(task, pid);
	p = bpf_map_lookup_elem(&pending, &tid);
	if (p) {
		/* Else it did send, and SYN_SENT was not seen: the kernel skips a
		 * program that runs on the CPU already. */
		if (ret < 0)
			emit_never_sent(p, -ret);
		forget_pending(&tid);
	}
	return 0;
}

SEC("fexit/tcp_v4_connect")
int BPF_PROG(return4_fexit, struct sock *sk, void *uaddr, int len, int ret)
{
	return handle_return(ret);
}

SEC("fexit/tcp_v6_connect")
int BPF_PROG(return6_fexit, struct sock *sk, void *uaddr, int len, int ret)
{
	return handle_return(ret);
}

static __always_inline int returned_value(void *ctx)
{
	struct pt_regs___x86_ax *x86 = ctx;
	struct pt_regs___arm64 *arm64 = ctx;

	if (bpf_core_field_exists(x86->ax))
		return BPF_CORE_READ(x86, ax);
	if (bpf_core_field_exists(arm64->regs))
		return BPF_CORE_READ(arm64, regs[0]);
	return 0;
}

SEC("kretprobe/tcp_v4_connect")
int return4_kp(void *ctx)
{
	return handle_return(returned_value(ctx));
}

SEC("kretprobe/tcp_v6_connect")
int return6_kp(void *ctx)
{
	return handle_return(returned_value(ctx));
}

/* Never attached: run by the agent for a connect() that has been pending too
 * long (arguments: thread, start_ns), where no program saw it return. */
SEC("raw_tp/kernosis_sweep")
int sweep(__u64 *ctx)
{
	__u32 tid = ctx[0];
	struct pending *p = bpf_map_lookup_elem(&pending, &tid);

	if (p && p->start_ns == ctx[1]) {
		emit_never_sent(p, 0);
		forget_pending(&tid);
	}
	return 0;
}

#endif
