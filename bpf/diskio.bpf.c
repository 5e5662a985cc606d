//go:build ignore
// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * diskio: a block device answered a request with an error.
 *
 * Hooks: block_rq_error (v5.18), which the kernel passes only for what it would
 * also print: not for passthrough commands (whose sender judges the answer) nor
 * for quiet requests. Older kernels have block_rq_complete, where the same is
 * left out here. Both are blind to devices without requests of their own (dm,
 * md); block_bio_complete sees those, and is attached on demand only.
 *
 * Cost: nothing until an error where block_rq_error exists. The other two run
 * for each request, or each bio of a bio-based device, and leave after the first
 * compare: about 0.1 us by the kernel's BPF statistics, whose own clock is part of
 * that (BenchmarkDiskIOSuccess). An error takes 0.8 us, and 8 us more when it wakes
 * the reader (docs/benchmarks.md); of a storm most are only counted. Kernels 5.10 and
 * later.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#define RING_BYTES (1 << 19) /* 700 errors that nobody has read yet */
#define RING_RECORD struct kn_diskio
#include "diskio.h"
#include "ring.bpf.h"
#include "core_compat.bpf.h"
#include "subject.bpf.h"

/* Request tracepoints pass a blk_status_t since v5.16, before that an errno. */
const volatile bool error_is_status;

/* Bit of RQF_QUIET in rq_flags; for complete_raw only. A macro up to v6.11, and
 * of an enum without a name in v6.12, so no relocation finds it everywhere. */
const volatile __u32 quiet_bit;

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct blk_mq_ops;

struct request_queue {
	const struct blk_mq_ops *mq_ops;
};

struct gendisk {
	int major;
	int first_minor;
	char disk_name[KN_DISK_NAME];
};

struct block_device {
	u64 bd_start_sect;
	struct gendisk *bd_disk;
	u32 bd_dev;
};

struct bvec_iter {
	u64 bi_sector;
	unsigned int bi_size;
};

struct blkcg {
	struct cgroup_subsys_state css;
};

struct blkcg_gq {
	struct blkcg *blkcg;
};

struct bio {
	struct block_device *bi_bdev;
	unsigned int bi_opf;
	u8 bi_status;
	struct bvec_iter bi_iter;
	struct blkcg_gq *bi_blkg;
};

/* Up to v5.11 (309dca309fc3). */
struct bio___disk {
	struct gendisk *bi_disk;
};

struct request {
	unsigned int cmd_flags;
	unsigned int rq_flags;
	u64 __sector;
	struct bio *bio;
};

/* Up to v5.10 (0d02129e76ed): a partition was no block_device. */
struct device {
	u32 devt;
};

struct hd_struct {
	u64 start_sect;
	struct device __dev;
};

struct request___hd {
	struct hd_struct *part;
};
#pragma clang attribute pop

/* Operation numbers are part of the block layer's encoding of the direction
 * (the low bit is "to the device") and have not moved since v4.10. */
#define REQ_OP_MASK 0xff
#define REQ_OP_FIRST_PASSTHROUGH 32 /* SCSI_IN, SCSI_OUT (until v5.14), DRV_IN, DRV_OUT */
#define REQ_OP_LAST_PASSTHROUGH 35

enum req_flag_bits {
	__REQ_FAILFAST_DEV = 8,
	__REQ_FAILFAST_TRANSPORT = 9,
	__REQ_FAILFAST_DRIVER = 10,
	__REQ_PREFLUSH = 18,
	__REQ_RAHEAD = 19,
};

#define flag_set(flags, name) ((flags) & (1U << bpf_core_enum_value(enum req_flag_bits, name)))

static __always_inline __u8 op_flags(__u32 flags)
{
	__u8 out = 0;

	if (flag_set(flags, __REQ_RAHEAD))
		out |= KN_DISKIO_READAHEAD;
	if (flag_set(flags, __REQ_PREFLUSH))
		out |= KN_DISKIO_PREFLUSH;
	if (flag_set(flags, __REQ_FAILFAST_DEV) || flag_set(flags, __REQ_FAILFAST_TRANSPORT) ||
	    flag_set(flags, __REQ_FAILFAST_DRIVER))
		out |= KN_DISKIO_FAILFAST;
	return out;
}

static __always_inline __u32 disk_dev(struct gendisk *disk)
{
	return (__u32)BPF_CORE_READ(disk, major) << 20 | (__u32)BPF_CORE_READ(disk, first_minor);
}

/* rq is NULL for a bio of a bio-based device. */
static __always_inline void fill_device(struct kn_diskio *r, struct bio *bio, struct request *rq)
{
	struct bio___disk *old_bio = (void *)bio;
	struct gendisk *disk;

	r->start = 0;
	if (bpf_core_field_exists(old_bio->bi_disk)) {
		struct request___hd *old_rq = (void *)rq;

		disk = BPF_CORE_READ(old_bio, bi_disk);
		r->disk = r->dev = disk_dev(disk);
		/* The bio has forgotten its partition, the request has not. */
		if (rq && bpf_core_type_exists(struct hd_struct)) {
			struct hd_struct *part = BPF_CORE_READ(old_rq, part);

			if (part) {
				r->dev = BPF_CORE_READ(part, __dev.devt);
				r->start = BPF_CORE_READ(part, start_sect);
			}
		}
	} else {
		struct block_device *bdev = BPF_CORE_READ(bio, bi_bdev);

		disk = BPF_CORE_READ(bdev, bd_disk);
		r->disk = disk_dev(disk);
		r->dev = BPF_CORE_READ(bdev, bd_dev);
		r->start = BPF_CORE_READ(bdev, bd_start_sect);
	}
	__builtin_memset(r->disk_name, 0, sizeof(r->disk_name));
	bpf_probe_read_kernel_str(r->disk_name, sizeof(r->disk_name),
				  __builtin_preserve_access_index(&disk->disk_name));
}

/* Whom the I/O is charged to. The root stands for itself and for write-back
 * that nobody accounted, so it is left out. */
static __always_inline void fill_issuer(struct kn_diskio *r, struct bio *bio)
{
	no_chain(&r->issuer);
	if (!bpf_core_field_exists(bio->bi_blkg))
		return; /* no CONFIG_BLK_CGROUP */
	fill_chain(&r->issuer, BPF_CORE_READ(bio, bi_blkg, blkcg, css.cgroup, kn));
	if (r->issuer.depth)
		r->flags |= KN_DISKIO_ISSUER;
}

/*
 * Errors of one kind, of which STORM_RECORDS are recorded in each STORM_NS and the others
 * counted: a disk that fails can fail 50,000 times a second, each time with the same to
 * say. The agent reads the counts (collector/diskio.go). 256 kinds, 36 KiB; errors of
 * further ones are all recorded.
 */
#define STORM_KINDS 256
#define STORM_RECORDS 100
#define STORM_NS (60 * 1000000000ULL)

struct storm_kind {
	__u64 issuer; /* id of the control group; 0: not known */
	__u32 dev;
	__u32 disk;
	__u32 error;
	__u8 op;
	__u8 flags;
	__u8 pad[2];
	char disk_name[KN_DISK_NAME]; /* the number may become another disk's */
};

struct storm {
	__u64 began;   /* since boot, of the current STORM_NS */
	__u64 records; /* made in it */
	__u64 more;    /* errors without a record, since the map was made */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, STORM_KINDS);
	__type(key, struct storm_kind);
	__type(value, struct storm);
} storms SEC(".maps");

/* The agent's own notes: how many of storm.more it has reported. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, STORM_KINDS);
	__type(key, struct storm_kind);
	__type(value, __u64);
} storms_told SEC(".maps");

/* Two CPUs may both begin a period, which then has a few records more. No error goes
 * uncounted: there is no deletion while a kind's count goes up. */
static __always_inline bool is_recorded(const struct storm_kind *kind)
{
	__u64 now = bpf_ktime_get_boot_ns();
	struct storm *s = bpf_map_lookup_elem(&storms, kind);

	if (!s) {
		struct storm first = { .began = now };

		bpf_map_update_elem(&storms, kind, &first, BPF_NOEXIST);
		s = bpf_map_lookup_elem(&storms, kind);
		if (!s)
			return true;
	}
	if (now - s->began >= STORM_NS) {
		s->began = now;
		s->records = 0;
	}
	if (*(volatile __u64 *)&s->records < STORM_RECORDS) {
		__sync_fetch_and_add(&s->records, 1);
		return true;
	}
	__sync_fetch_and_add(&s->more, 1);
	return false;
}

/* As fill_device and fill_issuer, without the names of control groups. */
static __always_inline void fill_kind(struct storm_kind *k, struct bio *bio, struct request *rq)
{
	struct bio___disk *old_bio = (void *)bio;
	struct gendisk *disk;

	__builtin_memset(k, 0, sizeof(*k));
	if (bpf_core_field_exists(old_bio->bi_disk)) {
		struct request___hd *old_rq = (void *)rq;

		disk = BPF_CORE_READ(old_bio, bi_disk);
		k->disk = k->dev = disk_dev(disk);
		if (rq && bpf_core_type_exists(struct hd_struct)) {
			struct hd_struct *part = BPF_CORE_READ(old_rq, part);

			if (part)
				k->dev = BPF_CORE_READ(part, __dev.devt);
		}
	} else {
		struct block_device *bdev = BPF_CORE_READ(bio, bi_bdev);

		disk = BPF_CORE_READ(bdev, bd_disk);
		k->disk = disk_dev(disk);
		k->dev = BPF_CORE_READ(bdev, bd_dev);
	}
	bpf_probe_read_kernel_str(k->disk_name, sizeof(k->disk_name),
				  __builtin_preserve_access_index(&disk->disk_name));
	if (bpf_core_field_exists(bio->bi_blkg)) {
		struct kernfs_node *kn = BPF_CORE_READ(bio, bi_blkg, blkcg, css.cgroup, kn);

		if (kn && kernfs_parent(kn))
			k->issuer = BPF_CORE_READ(kn, id);
	}
}

static __always_inline int handle_request(struct request *rq, __s32 error, __u32 bytes)
{
	struct bio *bio = BPF_CORE_READ(rq, bio);
	__u32 flags = BPF_CORE_READ(rq, cmd_flags);
	__u32 op = flags & REQ_OP_MASK;
	struct storm_kind kind;
	struct kn_diskio *r;

	/* A request without bio is the block layer's own flush: the requests
	 * that wait for it fail in turn. */
	if (!bio)
		return 0;
	if (op >= REQ_OP_FIRST_PASSTHROUGH && op <= REQ_OP_LAST_PASSTHROUGH)
		return 0;
	fill_kind(&kind, bio, rq);
	kind.op = op;
	kind.flags = op_flags(flags) | (error_is_status ? KN_DISKIO_STATUS : 0);
	kind.error = error_is_status ? (__u8)error : -error;
	if (!is_recorded(&kind))
		return 0;
	r = reserve_record(struct kn_diskio, KN_DISKIO);
	if (!r)
		return 0;
	r->op = kind.op;
	r->flags = kind.flags;
	r->error = kind.error;
	r->sector = BPF_CORE_READ(rq, __sector);
	r->bytes = bytes;
	__builtin_memset(r->pad, 0, sizeof(r->pad));
	fill_device(r, bio, rq);
	fill_issuer(r, bio);
	bpf_ringbuf_submit(r, 0);
	return 0;
}

SEC("raw_tp/block_rq_error")
int request_raw(__u64 *ctx)
{
	return handle_request((void *)ctx[0], ctx[1], ctx[2]);
}

SEC("raw_tp/block_rq_complete")
int complete_raw(__u64 *ctx)
{
	struct request *rq = (void *)ctx[0];
	__s32 error = ctx[1];

	if (!error || BPF_CORE_READ(rq, rq_flags) & (1U << (quiet_bit & 31)))
		return 0;
	return handle_request(rq, error, ctx[2]);
}

SEC("raw_tp/block_bio_complete")
int bio_raw(__u64 *ctx)
{
	struct request_queue *q = (void *)ctx[0];
	struct bio *bio = (void *)ctx[1];
	__u8 status = BPF_CORE_READ(bio, bi_status);
	struct storm_kind kind;
	struct kn_diskio *r;
	__u32 flags;

	if (!status)
		return 0;
	/* With requests (dm can be that, too) the request hook has it. */
	if (BPF_CORE_READ(q, mq_ops))
		return 0;
	fill_kind(&kind, bio, NULL);
	flags = BPF_CORE_READ(bio, bi_opf);
	kind.op = flags & REQ_OP_MASK;
	kind.flags = op_flags(flags) | KN_DISKIO_STATUS | KN_DISKIO_BIO;
	kind.error = status;
	if (!is_recorded(&kind))
		return 0;
	r = reserve_record(struct kn_diskio, KN_DISKIO);
	if (!r)
		return 0;
	r->op = kind.op;
	r->flags = kind.flags;
	r->error = kind.error;
	r->sector = BPF_CORE_READ(bio, bi_iter.bi_sector);
	r->bytes = BPF_CORE_READ(bio, bi_iter.bi_size);
	__builtin_memset(r->pad, 0, sizeof(r->pad));
	fill_device(r, bio, NULL);
	fill_issuer(r, bio);
	bpf_ringbuf_submit(r, 0);
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
