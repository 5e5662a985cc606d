//go:build ignore
// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * hwerror: hardware reports an error: a CPU (machine check), a memory controller
 * (EDAC), a page whose memory failed, a PCI Express device (AER), or a device's
 * health reporter (devlink).
 *
 * Hooks: the subsystems' own tracepoints, passed once an error, also where the kernel
 * limits what it logs (AER since v6.16) or leaves logging to a decoder. They are built
 * into the kernel with the feature. Their context is the task that handles the error,
 * not one that it hits.
 *
 * Arguments were only appended since 5.10: aer_event got the type of bus (v7.0 or
 * near it). mce_record passes a struct mce, since v6.13 a struct mce_hw_err that
 * begins with it.
 *
 * Cost: nothing until an error. Kernels 5.10 and later.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#define RING_BYTES (1 << 18) /* 700 errors that nobody has read yet */
#define RING_RECORD struct kn_hwerror
#include "hwerror.h"
#include "ring.bpf.h"

/* uapi/asm/mce.h, of which fields are only appended, so that it needs no BTF. */
struct mce {
	u64 status;
	u64 misc;
	u64 addr;
	u64 mcgstatus;
	u64 ip;
	u64 tsc;
	u64 time;
	u8 cpuvendor;
	u8 inject_flags;
	u8 severity;
	u8 pad;
	u32 cpuid;
	u8 cs;
	u8 bank;
	u8 cpu; /* obsoleted by extcpu */
	u8 finished;
	u32 extcpu;
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct kobject {
	const char *name;
};

struct device {
	struct kobject kobj;
};

struct devlink {
	struct device *dev;
};
#pragma clang attribute pop

/* reserve returns a record in which all but the header and what is zero. */
static __always_inline struct kn_hwerror *reserve(__u32 what)
{
	struct kn_hwerror *r = reserve_record(struct kn_hwerror, KN_HWERROR);

	if (!r)
		return NULL;
	__builtin_memset((void *)r + sizeof(r->h), 0, sizeof(*r) - sizeof(r->h));
	r->what = what;
	return r;
}

SEC("raw_tp/mce_record")
int mce_raw(__u64 *ctx)
{
	struct kn_hwerror *r = reserve(KN_HWERROR_MACHINE_CHECK);
	struct mce m;

	if (!r)
		return 0;
	bpf_probe_read_kernel(&m, sizeof(m), (void *)ctx[0]);
	r->status = m.status;
	r->cpu = m.extcpu;
	r->bank = m.bank;
	r->vendor = m.cpuvendor;
	bpf_ringbuf_submit(r, 0);
	return 0;
}

SEC("raw_tp/mc_event")
int memory_raw(__u64 *ctx)
{
	struct kn_hwerror *r = reserve(KN_HWERROR_MEMORY);

	if (!r)
		return 0;
	r->severity = ctx[0];
	bpf_probe_read_kernel_str(r->detail, sizeof(r->detail), (void *)ctx[1]);
	bpf_probe_read_kernel_str(r->part, sizeof(r->part), (void *)ctx[2]);
	r->count = ctx[3];
	r->controller = (u8)ctx[4];
	bpf_ringbuf_submit(r, 0);
	return 0;
}

SEC("raw_tp/memory_failure_event")
int page_raw(__u64 *ctx)
{
	struct kn_hwerror *r = reserve(KN_HWERROR_PAGE);

	if (!r)
		return 0;
	r->pfn = ctx[0];
	r->type = ctx[1];
	r->result = ctx[2];
	bpf_ringbuf_submit(r, 0);
	return 0;
}

SEC("raw_tp/aer_event")
int pcie_raw(__u64 *ctx)
{
	struct kn_hwerror *r = reserve(KN_HWERROR_PCIE);

	if (!r)
		return 0;
	bpf_probe_read_kernel_str(r->part, sizeof(r->part), (void *)ctx[0]);
	r->status = (u32)ctx[1];
	r->severity = (u8)ctx[2];
	bpf_ringbuf_submit(r, 0);
	return 0;
}

SEC("raw_tp/devlink_health_report")
int health_raw(__u64 *ctx)
{
	struct devlink *devlink = (void *)ctx[0];
	struct kn_hwerror *r = reserve(KN_HWERROR_DEVICE_HEALTH);

	if (!r)
		return 0;
	/* Since v7.0 or near it a devlink may have no device, and then no part. */
	bpf_probe_read_kernel_str(r->part, sizeof(r->part), BPF_CORE_READ(devlink, dev, kobj.name));
	bpf_probe_read_kernel_str(r->reporter, sizeof(r->reporter), (void *)ctx[1]);
	bpf_probe_read_kernel_str(r->detail, sizeof(r->detail), (void *)ctx[2]);
	bpf_ringbuf_submit(r, 0);
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
