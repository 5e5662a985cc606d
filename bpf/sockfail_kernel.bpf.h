/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What sockfail reads of the kernel: types reduced to the fields it reads, and
 * constants that no BTF has. */
#ifndef KERNOSIS_SOCKFAIL_KERNEL_BPF_H
#define KERNOSIS_SOCKFAIL_KERNEL_BPF_H

#define AF_INET 2
#define AF_INET6 10
#define IPPROTO_TCP 6
#define SOCK_STREAM 1
#define RCV_SHUTDOWN 1
#define SHUTDOWN_MASK 3

#define ICMP_DEST_UNREACH 3
#define ICMP_FRAG_NEEDED 4
#define ICMP_TIME_EXCEEDED 11
#define ICMP_PARAMETERPROB 12

#define SO_EE_ORIGIN_ICMP 2
#define SO_EE_ORIGIN_ICMP6 3

#define TCP_FLAG_SYN 0x02
#define TCP_FLAG_ACK 0x10

/* include/net/tcp_states.h; user space's ABI (ss), so the numbers stay. */
enum {
	TCP_ESTABLISHED = 1,
	TCP_SYN_SENT,
	TCP_SYN_RECV,
	TCP_FIN_WAIT1,
	TCP_FIN_WAIT2,
	TCP_TIME_WAIT,
	TCP_CLOSE,
	TCP_CLOSE_WAIT,
	TCP_LAST_ACK,
	TCP_LISTEN,
	TCP_CLOSING,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct in6_addr {
	union {
		__u8 u6_addr8[16];
	} in6_u;
};

struct ns_common {
	unsigned int inum;
};

struct net {
	struct ns_common ns;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	unsigned short skc_family;
	unsigned char skc_state;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
};

struct sk_buff_head {
	struct sk_buff *prev;
	__u32 qlen;
};

struct sock {
	struct sock_common __sk_common;
	struct sk_buff_head sk_error_queue;
	int sk_err;
	int sk_err_soft;
	u16 sk_protocol; /* a bit field before v5.6 */
	u8 sk_shutdown;
};

struct inet_sock {
	__be16 inet_sport;
};

struct tcp_sock {
	u32 segs_out;
	u32 write_seq;
	u32 snd_una;
	u32 total_retrans;
	u32 srtt_us; /* eight times the smoothed round trip */
	u64 bytes_received;
	u64 bytes_acked;
};

struct net_device {
	possible_net_t nd_net;
};

struct sk_buff {
	struct net_device *dev;
	struct sock *sk;
	char cb[48];
	unsigned char *head;
	__u16 network_header;
};

struct sock_extended_err {
	__u32 ee_errno;
	__u8 ee_origin;
	__u8 ee_type;
	__u8 ee_code;
};

/* skb->cb of what is in an error queue. */
struct sock_exterr_skb {
	struct sock_extended_err ee;
};

struct nsproxy {
	struct net *net_ns;
};

struct task_struct___net {
	struct nsproxy *nsproxy;
};

struct task_struct___leader {
	struct task_struct___leader *group_leader;
	char comm[16];
};

struct pt_regs___x86_si {
	unsigned long si;
};

struct pt_regs___x86_ax {
	unsigned long ax;
};
#pragma clang attribute pop

/* Context of the cgroup/connect programs: user space's ABI (linux/bpf.h). */
struct bpf_sock_addr {
	__u32 user_family;
	__u32 user_ip4; /* network order, as are the next two */
	__u32 user_ip6[4];
	__u32 user_port;
	__u32 family;
	__u32 type;
	__u32 protocol;
};

/* Context of a sock_ops program, and what of it is used: user space's ABI too. */
struct bpf_sock;

struct bpf_sock_ops {
	__u32 op;
	__u32 args[4];
	__u32 addresses[11]; /* family to local_ip6 */
	__u32 remote_port;   /* network order */
	__u32 local[2];	     /* local_port, is_fullsock */
	__u32 snd_cwnd;
	__u32 srtt_us;
	__u32 bpf_sock_ops_cb_flags;
	__u32 figures[20]; /* state to sk_txhash */
	__u64 bytes_received;
	__u64 bytes_acked;
	struct bpf_sock *sk;
};
_Static_assert(__builtin_offsetof(struct bpf_sock_ops, remote_port) == 64, "ABI");
_Static_assert(__builtin_offsetof(struct bpf_sock_ops, bpf_sock_ops_cb_flags) == 84, "ABI");
_Static_assert(__builtin_offsetof(struct bpf_sock_ops, sk) == 184, "ABI");

enum {
	BPF_SOCK_OPS_STATE_CB_FLAG = 1 << 2,
	BPF_SOCK_OPS_TCP_CONNECT_CB = 3,
	BPF_SOCK_OPS_STATE_CB = 10,
};

#endif
