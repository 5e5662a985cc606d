/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Wire format: what our programs write to their ring buffers. Every record
 * starts with struct kn_header. Go's mirror is wire.go; a test compares both,
 * field by field, through the objects' BTF.
 *
 * KN_WIRE_VERSION changes with any change of a record's layout or meaning: an
 * agent that finds an older agent's ring still pinned reads it only when the
 * versions agree.
 */
#ifndef KERNOSIS_WIRE_H
#define KERNOSIS_WIRE_H

#define KN_WIRE_VERSION 2

/* Levels of a control group path that are captured: enough for a service in a
 * systemd container in a pod (foo.service, system.slice, container, pod, QoS,
 * kubepods). */
#define KN_LEVELS 6
/* "cri-containerd-" + 64 digits + ".scope" is 85; a pod slice is 64. */
#define KN_NAME 96

enum kn_kind {
	KN_CANARY = 1,
	KN_OOMKILL = 16,
	KN_HUNGTASK = 32,
	KN_HUNGTASK_RESUMED = 33,
	KN_DISKIO = 48,
	KN_FSERROR = 64,
	KN_SOCKFAIL = 80,
	KN_SOCKFAIL_RECOVERED = 81,
	KN_HWERROR = 96,
};

struct kn_header {
	__u16 version; /* KN_WIRE_VERSION */
	__u16 kind;    /* enum kn_kind */
	__u32 size;    /* of the whole record */
	__u64 boot_ns; /* CLOCK_BOOTTIME */
	__u32 cpu;
	__u32 pad;
};
_Static_assert(sizeof(struct kn_header) == 24, "wire");

struct kn_task {
	__u32 pid;
	__u32 tgid;
	__u64 start_ns; /* CLOCK_BOOTTIME */
	__u32 uid;
	__u32 pad;
	char comm[16];
};
_Static_assert(sizeof(struct kn_task) == 40, "wire");

/* A control group and its ancestors, leaf first, the root left out. Only the
 * first depth levels are set; names end with NUL. */
struct kn_chain {
	__u32 depth;
	__u32 truncated; /* there are more levels above */
	__u64 id[KN_LEVELS];
	char name[KN_LEVELS][KN_NAME];
};
_Static_assert(sizeof(struct kn_chain) == 8 + KN_LEVELS * (8 + KN_NAME), "wire");

struct kn_canary {
	struct kn_header h;
	__u64 nonce;
	__u64 jiffies;
};
_Static_assert(sizeof(struct kn_canary) == 40, "wire");

#endif
