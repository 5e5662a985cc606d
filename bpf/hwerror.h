/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef KERNOSIS_HWERROR_H
#define KERNOSIS_HWERROR_H

#include "wire.h"

#define KN_HW_PART 128 /* EDAC joins the labels of the modules in question */
#define KN_HW_DETAIL 128
#define KN_HW_REPORTER 32

enum kn_hwerror_what {
	KN_HWERROR_MACHINE_CHECK = 1,
	KN_HWERROR_MEMORY = 2,
	KN_HWERROR_PAGE = 3,
	KN_HWERROR_PCIE = 4,
	KN_HWERROR_DEVICE_HEALTH = 5,
};

/* Fields that a kind of error does not have are zero. */
struct kn_hwerror {
	struct kn_header h;
	__u32 what;	  /* enum kn_hwerror_what */
	__u32 severity;	  /* memory: enum hw_event_mc_err_type; PCIe: AER_NONFATAL and so on */
	__u64 status;	  /* machine check: MCi_STATUS; PCIe: the AER register less its mask */
	__u64 pfn;	  /* page: its frame number */
	__u32 cpu;	  /* machine check: which reports it */
	__u32 bank;	  /* machine check */
	__u32 vendor;	  /* machine check: X86_VENDOR_* */
	__u32 controller; /* memory: which reports it */
	__u32 count;	  /* memory: errors */
	__u32 type;	  /* page: enum mf_action_page_type, which differs between kernels */
	__u32 result;	  /* page: enum mf_result */
	__u32 pad;
	char part[KN_HW_PART];	       /* memory: the module's label; else the device */
	char detail[KN_HW_DETAIL];     /* memory, device health: the driver's words */
	char reporter[KN_HW_REPORTER]; /* device health */
};
_Static_assert(sizeof(struct kn_hwerror) == 24 + 2 * 4 + 2 * 8 + 8 * 4 + KN_HW_PART + KN_HW_DETAIL +
						    KN_HW_REPORTER,
	       "wire");

#endif
