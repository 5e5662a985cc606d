package hostfs

import (
	"slices"
	"strings"
)

// The kinds of a [WaitCause]: what a task in uninterruptible sleep waits for.
const (
	WaitDisk              = "disk"
	WaitNFS               = "nfs"
	WaitLock              = "lock"
	WaitFrozenFilesystem  = "frozen-filesystem"
	WaitFUSE              = "fuse"
	WaitNetworkFilesystem = "network-filesystem"
	WaitJournal           = "jbd2"
	WaitMemoryReclaim     = "memory-reclaim"
	WaitUnknown           = "unknown"
)

// waitRule defines what a task waits for if it sleeps in one of several kernel functions.
type waitRule struct {
	kind   string
	reason string
	// hint: the function has many purposes; its callers may be more specific.
	hint bool
	// over is the kind of hint that the rule overrides if it matches further out. Without a hint
	// before it, a rule that is not a hint itself decides.
	over string
	// next: only a direct caller of the hint's function counts.
	next bool
	// top: the rule applies only if the function itself sleeps, not a function called by it.
	top bool
	// refinesOnly: the rule applies only after a hint.
	refinesOnly bool
	// functions are prefixes of names without leading underscores; "$" ends a whole name.
	functions []string
}

// waitRules is the table; the first match for a function counts. The functions are those of Linux
// 5.10 to 7.3; one that a kernel does not have matches nothing there.
//
// A stack is read outwards from where the task sleeps. The first function that waits for one
// specific thing decides. Functions with many kinds of callers (io_schedule, waits for a page's bit)
// are hints that a function further out may refine: a task in io_schedule waits for a disk, unless
// nfs_… called it.
//
// /proc/PID/stack omits the scheduler's own functions, which for the kernel include those of mutexes,
// semaphores, rwsems, bits and completions. So that file shows only the function that took a lock. The
// lock itself is unknown unless the kernel's own report names it; the rules below cover that.
//
//nolint:gochecknoglobals // immutable
var waitRules = []waitRule{
	{
		// sb_start_write and similar functions take a percpu_rwsem that freeze_super holds for
		// writing; since v5.11 (8a3c84b649b0) they are inlined in these callers.
		kind: WaitFrozenFilesystem, reason: "its filesystem is frozen: a write waits for the thaw",
		over: percpu, next: true,
		functions: []string{
			"sb_start_", "mnt_want_write", "vfs_write", "vfs_iter_write", "vfs_fallocate", "vfs_copy_file_range",
			"vfs_truncate", "do_sys_ftruncate", "do_ftruncate", "kiocb_start_write", "kiocb_modify", "file_start_write",
			"do_iter_write", "do_iter_readv_writev", "vfs_writev", "do_splice_direct", "iter_file_splice_write",
			"io_write", "aio_write", "lo_rw_aio", "lo_write", "ovl_", "filemap_page_mkwrite", "do_page_mkwrite", "block_page_mkwrite",
			"ext4_page_mkwrite", "ext4_journal_check_start", "ext4_evict_inode", "ext4_buffered_write_iter",
			"ext4_file_write_iter", "xfs_trans_alloc", "xfs_filemap_", "xfs_file_", "xfs_write_fault", "btrfs_page_mkwrite", "start_transaction",
			"btrfs_file_write_iter", "f2fs_", "touch_atime", "open_last_lookups", "path_openat", "do_open", "do_unlinkat",
			"filename_create", "do_renameat2", "chown_common", "do_fchmodat", "chmod_common", "do_utimes", "vfs_utimes", "quota_",
		},
	},
	{
		kind: percpu, reason: "a per-CPU reader-writer semaphore that another task holds for writing",
		hint: true, functions: []string{"percpu_rwsem_wait", "percpu_down_read"},
	},
	{
		kind: WaitLock, reason: "a mutex, semaphore or reader-writer lock that another task holds",
		functions: []string{
			"mutex_", "ww_mutex_", "rt_mutex_", "rtlock_", "rwbase_", "rwsem_", "rt_spin_lock", "down$", "down_read",
			"down_write", "down_killable", "down_interruptible", "down_timeout", "down_common", "percpu_down_write",
		},
	},
	{
		// If these functions sleep uninterruptibly, they wait for the lock they take.
		kind: WaitLock, reason: "a lock that another task holds: the only thing that this function itself sleeps for",
		top: true, functions: []string{
			"fdget_pos", "lock_rename", "lock_two_", "fuse_lock_inode", "nfs_start_io_", "xfs_ilock", "pipe_lock", "pipe_double_lock",
			"pipe_write", "pipe_read", "anon_pipe_", "exc_page_fault", "do_user_addr_fault", "do_page_fault", "lock_mm_and_find_vma",
			"access_remote_vm", "vm_mmap_pgoff", "vm_munmap", "do_mprotect_pkey", "rtnl_lock", "rtnetlink_rcv_msg",
			"do_unlinkat", "filename_create", "open_last_lookups", "lookup_slow", "iterate_dir", "ext4_buffered_write_iter",
		},
	},
	{
		kind: WaitMemoryReclaim, reason: "memory is short: the allocation waits until some is freed",
		over: WaitDisk, // until v5.15 it sleeps in io_schedule_timeout
		functions: []string{
			"reclaim_throttle", "throttle_direct_reclaim", "congestion_wait", "wait_iff_congested",
			"mem_cgroup_handle_over_high", "mem_cgroup_oom_synchronize", "mem_cgroup_wait_acct_move",
		},
	},
	{
		kind: WaitMemoryReclaim, reason: "memory is short: the allocation waits for pages to be written back",
		over:      WaitDisk,
		functions: []string{"shrink_", "try_to_free_", "do_try_to_free_"},
	},
	{
		kind: WaitNFS, reason: "an NFS server has not answered",
		over: WaitDisk,
		functions: []string{
			"rpc_wait_", "rpc_execute", "nfs_wait_", "nfs4_wait_", "nfs_direct_wait", "nfs_iocounter_wait", "nfs4_handle_exception",
			"nfs4_call_sync", "nlmclnt_block", "nlmclnt_call", "xprt_destroy",
		},
	},
	{
		kind: WaitNFS, reason: "pages of a file on NFS: its server has not answered",
		over: WaitDisk, refinesOnly: true,
		functions: []string{"nfs_", "nfs3_", "nfs4_", "nfs41_", "nfs42_"},
	},
	{
		kind: WaitFUSE, reason: "the process that serves a FUSE filesystem has not answered",
		over:      WaitDisk,
		functions: []string{"request_wait_answer", "fuse_simple_request", "fuse_request_send", "fuse_get_req", "fuse_wait_", "fuse_set_nowrite", "fuse_sync_writes"},
	},
	{
		kind: WaitFUSE, reason: "pages of a file on FUSE: the process that serves it has not answered",
		over: WaitDisk, refinesOnly: true, functions: []string{"fuse_"},
	},
	{
		kind: WaitNetworkFilesystem, reason: "the server of a network filesystem (SMB, Ceph, 9P, AFS) has not answered",
		over: WaitDisk,
		functions: []string{
			"wait_for_response", "compound_send_recv", "cifs_wait_", "ceph_mdsc_wait", "ceph_mdsc_do_request", "ceph_wait_on_",
			"wait_caps", "ceph_osdc_wait_", "p9_client_rpc", "p9_virtio_request", "netfs_wait_", "afs_wait_", "afs_make_call",
		},
	},
	{
		kind: WaitNetworkFilesystem, reason: "pages of a file on a network filesystem (SMB, Ceph, 9P, AFS): its server has not answered",
		over: WaitDisk, refinesOnly: true,
		functions: []string{"cifs_", "smb2_", "ceph_", "v9fs_", "netfs_", "afs_"},
	},
	{
		kind: WaitJournal, reason: "an ext4 journal's commit: its thread, or a handle that another task keeps open",
		functions: []string{
			"jbd2_log_wait_commit", "jbd2_complete_transaction", "jbd2_journal_commit_transaction", "jbd2_journal_lock_updates",
			"wait_transaction_locked", "wait_transaction_switching", "start_this_handle", "add_transaction_credits",
		},
	},
	{
		kind: WaitJournal, reason: "a buffer that an ext4 journal's commit is writing",
		over: WaitDisk, functions: []string{"do_get_write_access"},
	},
	{
		kind: WaitDisk, reason: "XFS or btrfs waits for its log, a buffer or a transaction",
		functions: []string{
			"xlog_", "xfs_log_", "xfs_buf_", "xfs_ail_", "xfsaild_", "btrfs_wait_", "btrfs_commit_transaction", "btrfs_sync_log",
			"wait_current_trans", "wait_for_commit", "wait_log_commit", "btrfs_start_ordered",
		},
	},
	{
		kind: WaitDisk, reason: "writers are slowed down: too much is written that the disk has yet to take",
		hint: true, functions: []string{"balance_dirty_pages", "wbt_", "rq_qos_", "blk_throtl", "iocost_", "ioc_rqos_", "blk_iolatency"},
	},
	{
		kind: WaitDisk, reason: "a disk has not completed I/O",
		hint: true,
		functions: []string{
			"io_schedule", "bit_wait_io", "folio_wait_", "folio_lock", "folio_put_wait", "lock_page", "wait_on_page", "wait_on_buffer",
			"lock_buffer", "sync_dirty_buffer", "jbd2_write_superblock", "bread", "blk_", "blkdev_", "submit_bio", "bio_", "dio_", "do_blockdev_direct_IO",
			"iomap_dio_", "wb_wait_", "inode_wait_for_writeback", "wait_sb_inodes", "sync_inodes_sb", "writeback_", "filemap_fdatawait", "filemap_write_and_wait",
			"wait_for_completion_io", "scsi_", "sd_", "ata_", "nvme_", "dm_", "md_", "mddev_", "raid", "loop_", "zram_", "virtblk_",
			"do_swap_page", "swap_read", "read_swap", "swapin_",
		},
	},
	{
		kind: WaitUnknown, reason: "frozen by the freezer of its cgroup or for a suspend: no fault",
		functions: []string{"refrigerator", "cgroup_freeze", "do_freezer_trap"},
	},
	{
		kind: WaitUnknown, reason: "a parent in vfork waits for its child to exec or to end: no fault of the kernel",
		functions: []string{"wait_for_vfork_done"},
	},
	{
		kind: WaitUnknown, reason: "waits for the process that handles its page faults (userfaultfd)",
		functions: []string{"handle_userfault"},
	},
	{
		kind: WaitUnknown, reason: "waits for the other threads of its process, which is dumping core",
		functions: []string{"coredump_wait", "exit_mm", "coredump_task_exit"},
	},
}

// percpu is only a hint: it becomes WaitLock unless a caller refines it.
const percpu = "percpu-rwsem"

// WaitCause is the meaning of a stack.
type WaitCause struct {
	Kind     string // [WaitDisk], [WaitLock] and so on
	Function string // the function that shows it; empty if there is no stack
	Reason   string // for a person
}

// String returns the reason with the function that shows it.
func (c *WaitCause) String() string {
	if c.Function == "" {
		return c.Reason
	}
	return c.Reason + " (" + c.Function + ")"
}

// WaitCauseOf returns the cause that a stack, innermost frame first, or just a wait channel shows.
func WaitCauseOf(stack []string) WaitCause {
	var found WaitCause
	hintAt, top := -1, sleepsIn(stack)
	for i, frame := range stack {
		function := FrameFunction(frame)
		for r := range waitRules {
			rule := &waitRules[r]
			if !rule.matches(function) {
				continue
			}
			switch {
			case hintAt < 0 && (rule.next || rule.refinesOnly), rule.next && i != hintAt+1, rule.top && i != top:
				continue // means nothing by itself
			case hintAt >= 0 && rule.hint && rule.kind == found.Kind && i == hintAt+1:
				hintAt = i // still the same wait
			case hintAt < 0, rule.over == found.Kind:
				found = WaitCause{rule.kind, function, rule.reason}
				if !rule.hint {
					return found
				}
				hintAt = i
			}
			break
		}
	}
	switch found.Kind {
	case "":
		return unknownWait(stack)
	case percpu:
		found.Kind = WaitLock
	}
	return found
}

// unknownWait returns the cause if no rule matches.
func unknownWait(stack []string) WaitCause {
	c := WaitCause{Kind: WaitUnknown, Reason: "its kernel stack is not available"}
	if top := TopFrame(stack); top != "" {
		c.Function = FrameFunction(top)
		c.Reason = "a lock or an event, in a function that may wait for different things"
	}
	return c
}

func (r *waitRule) matches(function string) bool {
	return slices.ContainsFunc(r.functions, func(f string) bool {
		if whole, ok := strings.CutSuffix(f, "$"); ok {
			return function == whole
		}
		return strings.HasPrefix(function, f)
	})
}

// FrameFunction returns the function of a frame, without leading underscores: mutex_lock for
// "__mutex_lock.constprop.0+0x1f [module]".
func FrameFunction(frame string) string {
	function, _, _ := strings.Cut(frame, " ")
	function, _, _ = strings.Cut(function, "+")
	function, _, _ = strings.Cut(function, ".")
	return strings.TrimLeft(function, "_")
}

// TopFrame returns the innermost frame that is not the scheduler's: what the task called.
func TopFrame(stack []string) string {
	if i := sleepsIn(stack); i < len(stack) {
		return stack[i]
	}
	return ""
}

// sleepsIn returns the index of that frame.
func sleepsIn(stack []string) int {
	for i, frame := range stack {
		switch f := FrameFunction(frame); {
		case f == "schedule", f == "schedule_timeout", f == "schedule_preempt_disabled", f == "io_schedule",
			f == "io_schedule_timeout", f == "schedule_hrtimeout_range", strings.HasPrefix(f, "context_switch"):
		default:
			return i
		}
	}
	return 0
}
