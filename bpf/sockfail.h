/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef KERNOSIS_SOCKFAIL_H
#define KERNOSIS_SOCKFAIL_H

#include "wire.h"

/* Bits of struct kn_sockfail's flags. */
enum kn_sock_flags {
	KN_SOCK_RESET = 1 << 0,      /* a reset was received */
	KN_SOCK_NOT_SENT = 1 << 1,   /* the socket sent no packet at all */
	KN_SOCK_NO_STATE = 1 << 2,   /* connect() was called, SYN_SENT never reached */
	KN_SOCK_PEER_CLOSED = 1 << 3, /* the peer closed (FIN) */
	KN_SOCK_ESTABLISHED = 1 << 4, /* the handshake was complete */
	KN_SOCK_DROPPED = 1 << 5,    /* drop_* are set */
	KN_SOCK_ICMP = 1 << 6,       /* icmp_* are set */
	KN_SOCK_SLOW = 1 << 7,       /* bytes came, and the opener closed after limit_ms */
};

/* One connection's outcome. Addresses are 16 bytes, IPv4 as ::ffff:a.b.c.d,
 * ports and errors in host order, errors positive. */
struct kn_sockfail {
	struct kn_header h;
	struct kn_task opener;
	__u8 saddr[16];
	__u8 daddr[16];
	__u16 sport; /* 0: none was found or looked for */
	__u16 dport;
	__u32 netns;  /* inode, of the socket */
	__u32 target; /* id that user space gave the target */
	__u8 flags;
	__u8 old_state;
	__u8 new_state;
	__u8 icmp_type;
	__u64 start_ns;       /* of the connect(), CLOCK_BOOTTIME */
	__u64 bytes_acked;    /* by the peer, the SYN included */
	__u64 bytes_received; /* the FIN left out where it is known to be in */
	__u64 unacked;        /* sequence numbers sent or queued, not acknowledged */
	__u64 drop_location;
	__u32 drop_reason;
	__u32 drops;
	__u32 retransmits;
	__u32 err;      /* sk_err, or what connect() returned */
	__u32 err_soft; /* sk_err_soft */
	__u8 icmp_code;
	__u8 icmp_origin; /* SO_EE_ORIGIN_*, received by the socket; 0: seen being sent */
	__u8 pad[2];
	__u32 rtt_us;   /* smoothed round trip, once established */
	__u32 limit_ms; /* from when on the target's answers are slow; 0: never */
	__u64 memory_id; /* ids of the opener's leaf groups, should the chains be empty */
	__u64 dfl_id;
	struct kn_chain memory;
	struct kn_chain dfl;
};
_Static_assert(sizeof(struct kn_sockfail) == 24 + 40 + 32 + 16 + 5 * 8 + 5 * 4 + 4 + 2 * 4 + 2 * 8 +
						     2 * sizeof(struct kn_chain),
	       "wire");

#endif
