package collector

import (
	"slices"
	"strings"

	"github.com/kernosis/kernosis/collector/hostfs"
)

// What a hung task waits for (event.HungTaskData.Wait).
const (
	waitIO   = "io"
	waitLock = "lock"
	// waitCommand is a single device command that may take hours without a fault: discard, erase,
	// write zeroes, or a command from user space (SG_IO).
	waitCommand = "command"
	waitOther   = "other"
)

// commandFunctions returns prefixes of kernel functions that send such a command and wait.
func commandFunctions() []string {
	return []string{
		"blk_execute_rq", "blkdev_issue_discard", "blkdev_issue_secure_erase",
		"blkdev_issue_zeroout", "blkdev_issue_write_zeroes",
	}
}

// waitOf returns what a task waits for. A lock recorded by the kernel is what it waits for right
// now, even if the lock's holder waits for a device. in_iowait is equally certain. Otherwise the
// stack decides.
func waitOf(recordedLock, inIOWait bool, frames []string) string {
	switch {
	case recordedLock:
		return waitLock
	case inIOWait && slices.ContainsFunc(frames, isCommand):
		return waitCommand
	case inIOWait:
		return waitIO
	}
	switch hostfs.WaitCauseOf(frames).Kind {
	case hostfs.WaitLock, hostfs.WaitFrozenFilesystem: // the lock that a freeze holds
		return waitLock
	case hostfs.WaitDisk, hostfs.WaitJournal, hostfs.WaitNFS, hostfs.WaitFUSE, hostfs.WaitNetworkFilesystem:
		return waitIO
	default:
		return waitOther
	}
}

func isCommand(frame string) bool {
	function := hostfs.FrameFunction(frame)
	return slices.ContainsFunc(commandFunctions(), func(f string) bool { return strings.HasPrefix(function, f) })
}
