package collector

import (
	"slices"
	"strings"
)

// What a hung task waits for (event.HungTaskData.Wait).
const (
	waitIO   = "io"
	waitLock = "lock"
	// waitCommand is a single command to a device that may take hours when all is
	// well: to discard, to erase, to fill with zeroes, or one of user space (SG_IO).
	waitCommand = "command"
	waitOther   = "other"
)

// lockFunctions are beginnings of kernel functions that wait for a lock, without
// leading underscores.
func lockFunctions() []string {
	return []string{
		"mutex_", "ww_mutex_", "rt_mutex_", "rwsem_", "down_", "percpu_rwsem_", "percpu_down_", "rtlock_",
	}
}

// ioFunctions are beginnings of those that wait for a device, a server or the
// pages they fill.
func ioFunctions() []string {
	return []string{
		"io_schedule", "bit_wait_io", "wait_on_buffer", "wait_on_page", "folio_wait_", "folio_lock", "lock_page",
		"lock_buffer", "blk_", "blkdev_", "submit_bio", "bio_", "rq_qos_", "wbt_", "dio_", "iomap_dio_",
		"jbd2_", "wait_transaction_locked", "start_this_handle", "add_transaction_credits",
		"xlog_", "xfs_log_", "xfs_buf_", "btrfs_wait_", "btrfs_commit_transaction", "balance_dirty_pages",
		"wb_wait_", "sync_inodes_sb", "writeback_", "scsi_", "nvme_", "dm_", "md_", "raid", "loop_",
		"rpc_", "nfs_", "nfs4_", "cifs_", "smb2_", "fuse_", "request_wait_answer", "ceph_", "p9_", "v9fs_",
	}
}

// commandFunctions are beginnings of those that send such a command and wait.
func commandFunctions() []string {
	return []string{
		"blk_execute_rq", "blkdev_issue_discard", "blkdev_issue_secure_erase",
		"blkdev_issue_zeroout", "blkdev_issue_write_zeroes",
	}
}

// waitOf reports what a task waits for. A lock that the kernel has recorded is
// what it waits for at this moment, even for a device's sake; in_iowait is as
// certain. Else the innermost frame that means one or the other decides: below
// a lock stands whatever took it.
func waitOf(recordedLock, inIOWait bool, stack []string) string {
	switch {
	case recordedLock:
		return waitLock
	case inIOWait && slices.ContainsFunc(stack, isCommand):
		return waitCommand
	case inIOWait:
		return waitIO
	}
	locks, io := lockFunctions(), ioFunctions()
	for _, frame := range stack {
		function := functionOf(frame)
		switch {
		case hasAnyPrefix(function, locks), function == "down":
			return waitLock
		case hasAnyPrefix(function, io):
			return waitIO
		}
	}
	return waitOther
}

func isCommand(frame string) bool { return hasAnyPrefix(functionOf(frame), commandFunctions()) }

// functionOf returns the name in a frame, without leading underscores.
func functionOf(frame string) string {
	function, _, _ := strings.Cut(strings.TrimLeft(frame, "_"), "+")
	return function
}

func hasAnyPrefix(s string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}
