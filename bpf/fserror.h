/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef KERNOSIS_FSERROR_H
#define KERNOSIS_FSERROR_H

#include "wire.h"

#define KN_FS_TYPE 16
#define KN_FS_ID 32 /* of super_block.s_id, mostly the device's name */
#define KN_FS_FUNCTION 64

enum kn_fserror_what {
	KN_FSERROR_ERROR = 1,
	KN_FSERROR_SHUTDOWN = 2, /* the filesystem stops all I/O */
};

struct kn_fserror {
	struct kn_header h;
	struct kn_task task; /* which found it; a kernel thread in write-back */
	__u32 dev;	     /* major << 20 | minor */
	__u32 line;	     /* in the kernel's source; 0: not told */
	__u32 what;	     /* enum kn_fserror_what */
	__u32 shutdown_flags; /* the filesystem's own */
	char fs_type[KN_FS_TYPE];
	char id[KN_FS_ID];
	char function[KN_FS_FUNCTION]; /* kernel function that found it */
	struct kn_chain memory;
	struct kn_chain dfl;
};
_Static_assert(sizeof(struct kn_fserror) == 24 + 40 + 4 * 4 + KN_FS_TYPE + KN_FS_ID +
						    KN_FS_FUNCTION + 2 * sizeof(struct kn_chain),
	       "wire");

#endif
