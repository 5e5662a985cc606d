//go:build ignore
// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * fserror: a filesystem found that its data on disk are wrong or could not be
 * written, or shut itself down.
 *
 * Hooks: each filesystem's own tracepoint, passed once an error, also where the
 * kernel log is rate-limited. They run in the context of the task that met the
 * error, which in write-back is a kernel thread. Filesystems may be modules:
 * raw_tp can be attached once the module is loaded, on 5.10 too, where modules
 * have no BTF (and tp_btf can't).
 *
 * xfs got its tracepoint in v6.5 (and back-ports to 6.1). Before, a kprobe sees the
 * function that all its shutdowns pass (another one since v5.16, b36d4651e165), which
 * does not know the place that found the error (xfs_do_force_shutdown does, but is
 * inlined where it matters), and once more an error of the log of a filesystem that
 * is down already.
 *
 * Cost: nothing until an error. Kernels 5.10 and later.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#define RING_BYTES (1 << 19) /* 360 errors that nobody has read yet */
#define RING_RECORD struct kn_fserror
#include "fserror.h"
#include "ring.bpf.h"
#include "core_compat.bpf.h"
#include "subject.bpf.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct file_system_type {
	const char *name;
};

struct super_block {
	u32 s_dev;
	struct file_system_type *s_type;
	void *s_fs_info;
	char s_id[KN_FS_ID];
};
#pragma clang attribute pop

static __always_inline int handle_error(struct super_block *sb, __u32 what, const char *function,
					__u32 line, __u32 shutdown_flags)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct kn_fserror *r = reserve_record(struct kn_fserror, KN_FSERROR);

	if (!r)
		return 0;
	r->dev = BPF_CORE_READ(sb, s_dev);
	r->line = line;
	r->what = what;
	r->shutdown_flags = shutdown_flags;
	/* User space compares whole arrays. */
	__builtin_memset(r->fs_type, 0, sizeof(r->fs_type));
	__builtin_memset(r->id, 0, sizeof(r->id));
	__builtin_memset(r->function, 0, sizeof(r->function));
	bpf_probe_read_kernel_str(r->fs_type, sizeof(r->fs_type), BPF_CORE_READ(sb, s_type, name));
	bpf_probe_read_kernel_str(r->id, sizeof(r->id), __builtin_preserve_access_index(&sb->s_id));
	if (function)
		bpf_probe_read_kernel_str(r->function, sizeof(r->function), function);
	fill_task(&r->task, task);
	fill_memory_chain(&r->memory, task);
	fill_default_chain(&r->dfl, task);
	bpf_ringbuf_submit(r, 0);
	return 0;
}

SEC("raw_tp/ext4_error")
int ext4_error_raw(__u64 *ctx)
{
	return handle_error((void *)ctx[0], KN_FSERROR_ERROR, (void *)ctx[1], ctx[2], 0);
}

SEC("raw_tp/ext4_shutdown")
int ext4_down_raw(__u64 *ctx)
{
	return handle_error((void *)ctx[0], KN_FSERROR_SHUTDOWN, NULL, 0, ctx[1]);
}

/* Where struct xfs_mount may have m_super, in bytes: it comes after a copy of the
 * super block on disk, of 264 bytes and growing slowly. */
#define XFS_MOUNT_LOOK 1024

/* The super block of an xfs_mount: what it points to that points back. The struct
 * itself is known to the module's BTF only, and on 5.10 to none. */
static __always_inline struct super_block *xfs_super(void *mount)
{
	struct super_block *sb;
	void *back;

	for (int at = 0; at < XFS_MOUNT_LOOK; at += sizeof(sb)) {
		if (bpf_probe_read_kernel(&sb, sizeof(sb), mount + at) || !sb)
			continue;
		if (!bpf_core_read(&back, sizeof(back), &sb->s_fs_info) && back == mount)
			return sb;
	}
	return NULL;
}

SEC("raw_tp/xfs_force_shutdown")
int xfs_down_raw(__u64 *ctx)
{
	return handle_error(xfs_super((void *)ctx[0]), KN_FSERROR_SHUTDOWN, (void *)ctx[3], ctx[4],
			    ctx[2]);
}

SEC("kprobe/xlog_force_shutdown")
int xfs_log_down_kp(void *ctx)
{
	void **log = (void *)first_argument(ctx), *mount; /* l_mp is the first field */

	if (!log || bpf_probe_read_kernel(&mount, sizeof(mount), log))
		return 0; /* it fails before it has a log: the mount is refused */
	return handle_error(xfs_super(mount), KN_FSERROR_SHUTDOWN, NULL, 0, 0);
}

SEC("kprobe/xfs_log_force_umount")
int xfs_down_kp(void *ctx)
{
	return handle_error(xfs_super((void *)first_argument(ctx)), KN_FSERROR_SHUTDOWN, NULL, 0,
			    0);
}

char _license[] SEC("license") = "Dual BSD/GPL";
