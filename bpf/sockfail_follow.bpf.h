/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The states of connections to targets, as sock_ops calls tell them. Part of
 * sockfail.bpf.c, whose maps and helpers it uses.
 *
 * The kernel calls these programs for states only of sockets that asked for it: here
 * those that connect to a target. And from 6.1 on it skips a tracing program that is
 * running on the CPU already, which with preemption may be another task's run, for
 * milliseconds; these have no such guard.
 */
#ifndef KERNOSIS_SOCKFAIL_FOLLOW_BPF_H
#define KERNOSIS_SOCKFAIL_FOLLOW_BPF_H

static __always_inline struct sock *sock_of(struct bpf_sock_ops *ctx)
{
	/* A typed pointer, which the verifier lets nobody calculate with. Read
	 * from memory it is a number. */
	struct bpf_sock *volatile typed = ctx->sk;
	struct sock *sk = NULL;

	bpf_probe_read_kernel(&sk, sizeof(sk), (void *)&typed);
	return sk;
}

/* tcp_connect: SYN_SENT, and nothing is sent yet. */
static __always_inline void handle_connecting(struct bpf_sock_ops *ctx, struct sock *sk)
{
	struct config *cfg = active_config();

	if (!cfg)
		return;
	if (!find_conn(sk))
		handle_open(sk, cfg);
	/* Others may have asked for calls of their own. */
	if (find_conn(sk))
		bpf_sock_ops_cb_flags_set(ctx, ctx->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_STATE_CB_FLAG);
}

/* Whether a connection is begun that may be to a target, or whose connect() was
 * noted as one to a target. */
static __always_inline bool connects(struct bpf_sock_ops *ctx)
{
	struct config *cfg = active_config();

	return cfg && (watches_port(cfg, bpf_ntohl(ctx->remote_port)) || maybe_pending());
}

SEC("sockops")
int follow_ops(struct bpf_sock_ops *ctx)
{
	struct sock *sk;

	if (ctx->op != BPF_SOCK_OPS_TCP_CONNECT_CB && ctx->op != BPF_SOCK_OPS_STATE_CB)
		return 1;
	if (ctx->op == BPF_SOCK_OPS_TCP_CONNECT_CB && !connects(ctx))
		return 1;
	sk = sock_of(ctx);
	if (!sk)
		return 1;
	if (ctx->op == BPF_SOCK_OPS_STATE_CB)
		handle_state(sk, ctx->args[0], ctx->args[1]);
	else
		handle_connecting(ctx, sk);
	return 1; /* and no reply: what the kernel or another program says */
}

#endif
