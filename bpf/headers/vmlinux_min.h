/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The kernel types that our programs read, reduced to the fields they read.
 *
 * CO-RE relocates every access against the running kernel's BTF, so order,
 * size and neighbours of the fields do not matter; only names and types do.
 * A layout that older or newer kernels have stands beside the first as a
 * flavour: "struct x___why", used behind bpf_core_field_exists().
 */
#ifndef KERNOSIS_VMLINUX_MIN_H
#define KERNOSIS_VMLINUX_MIN_H

typedef unsigned char __u8;
typedef signed char __s8;
typedef unsigned short __u16;
typedef short __s16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u64 __be64;
typedef __u32 __wsum;
typedef __u16 __sum16;
typedef _Bool bool;
typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s64 s64;

#define true 1
#define false 0
#define NULL ((void *)0)

/* uapi/linux/bpf.h: only what is used, to keep the header free of the rest. */
enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_HASH = 5,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_RINGBUF = 27,
};

enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
	BPF_EXIST = 2,
};

enum {
	BPF_F_NO_PREALLOC = 1,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
	int counter;
} atomic_t;

typedef struct {
	s64 counter;
} atomic64_t;

typedef struct {
	long counter;
} atomic_long_t;

struct pt_regs___x86 {
	unsigned long di;
};

struct pt_regs___arm64 {
	u64 regs[31];
};

struct kernfs_node {
	struct kernfs_node *parent;
	const char *name;
	u64 id;
};

/* v6.18 made the parent pointer RCU-managed and renamed it. */
struct kernfs_node___rcu {
	struct kernfs_node *__parent;
};

struct cgroup {
	struct kernfs_node *kn;
};

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
};

enum cgroup_subsys_id {
	io_cgrp_id = 1,
	memory_cgrp_id = 4,
};

struct css_set {
	struct cgroup_subsys_state *subsys[16];
	struct cgroup *dfl_cgrp;
};

typedef struct {
	__u32 val;
} kuid_t;

struct cred {
	kuid_t uid;
};

struct signal_struct {
	short oom_score_adj;
};

struct mm_rss_stat {
	atomic_long_t count[4];
};

struct percpu_counter {
	s64 count;
};

struct mm_struct {
	unsigned long total_vm;
	atomic_long_t pgtables_bytes;
	struct mm_rss_stat rss_stat;
};

/* v6.2 (f1a7941243c1): one percpu_counter for each kind of page. */
struct mm_struct___percpu {
	struct percpu_counter rss_stat[4];
};

struct task_struct {
	int pid;
	int tgid;
	char comm[16];
	u64 start_boottime;
	const struct cred *cred;
	struct css_set *cgroups;
	struct mm_struct *mm;
	struct signal_struct *signal;
};

#pragma clang attribute pop

#endif
