package collector

import "strings"

// What a hung task waits for (event.HungTaskData.Wait).
const (
	waitIO    = "io"
	waitLock  = "lock"
	waitOther = "other"
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

// waitOf tells what a task waits for. A lock that the kernel has recorded is
// what it waits for at this moment, even for a device's sake; in_iowait is as
// certain. Else the innermost frame that means one or the other decides: below
// a lock stands whatever took it.
func waitOf(recordedLock, inIOWait bool, stack []string) string {
	switch {
	case recordedLock:
		return waitLock
	case inIOWait:
		return waitIO
	}
	locks, io := lockFunctions(), ioFunctions()
	for _, frame := range stack {
		function, _, _ := strings.Cut(strings.TrimLeft(frame, "_"), "+")
		switch {
		case hasAnyPrefix(function, locks), function == "down":
			return waitLock
		case hasAnyPrefix(function, io):
			return waitIO
		}
	}
	return waitOther
}

func hasAnyPrefix(s string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}
