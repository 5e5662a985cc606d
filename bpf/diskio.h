/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef KERNOSIS_DISKIO_H
#define KERNOSIS_DISKIO_H

#include "wire.h"

/* DISK_NAME_LEN */
#define KN_DISK_NAME 32

enum kn_diskio_flags {
	KN_DISKIO_STATUS = 1 << 0,    /* error is a blk_status_t, else a positive errno */
	KN_DISKIO_BIO = 1 << 1,	      /* of a bio-based device (dm, md) */
	KN_DISKIO_READAHEAD = 1 << 2, /* speculative: the real read follows */
	KN_DISKIO_FAILFAST = 1 << 3,  /* who sent it handles failures (multipath, RAID, read-ahead) */
	KN_DISKIO_PREFLUSH = 1 << 4,  /* the device's cache is flushed first */
	KN_DISKIO_ISSUER = 1 << 5,    /* issuer is below the root, so it is known */
};

/* Nothing here is of the current task: an error is found in an interrupt. */
struct kn_diskio {
	struct kn_header h;
	__u64 sector; /* 512-byte units, from the start of the whole disk */
	__u64 start;  /* first sector of the partition; 0: the whole disk */
	__u32 dev;    /* partition or disk: major << 20 | minor; 0: a hidden disk */
	__u32 disk;   /* whole disk, likewise */
	__u32 bytes;
	__u32 error;
	__u8 op;    /* enum req_op */
	__u8 flags; /* enum kn_diskio_flags */
	__u8 pad[6];
	char disk_name[KN_DISK_NAME];
	struct kn_chain issuer; /* the control group that the I/O is charged to */
};
_Static_assert(sizeof(struct kn_diskio) == 24 + 2 * 8 + 4 * 4 + 8 + KN_DISK_NAME +
						   sizeof(struct kn_chain),
	       "wire");

#endif
