package hostfs

import (
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrnoName returns the name of an errno value of either sign: "EIO" for 5 and -5, "ERRNO_<n>" if
// it has no name, "" for 0.
func ErrnoName(n int32) string {
	e := int64(n)
	if e < 0 {
		e = -e
	}
	if e == 0 {
		return ""
	}
	switch e {
	// Numbers with several names: package unix does not use the kernel's name.
	case int64(unix.EDEADLK):
		return "EDEADLK"
	case int64(unix.EOPNOTSUPP):
		return "EOPNOTSUPP"
	case int64(unix.EBADMSG):
		return "EBADMSG"
	case int64(unix.EUCLEAN):
		return "EUCLEAN"
	// include/linux/errno.h: internal, but seen in block completions (ENOTSUPP) and on sockets.
	case 512:
		return "ERESTARTSYS"
	case 524:
		return "ENOTSUPP"
	}
	if name := unix.ErrnoName(syscall.Errno(e)); name != "" {
		return name
	}
	return "ERRNO_" + strconv.FormatInt(e, 10)
}

// blkStatuses returns blk_errors of the kernel's block/blk-core.c, indexed by the values of
// include/linux/blk_types.h. They are macros, so BTF does not have them.
//
// Values 0 to 13 are the same on every kernel since 5.10 (6 was called NEXUS before 6.5, with the
// same meaning). From 14 on they depend on the kernel: 6.10 removed ZONE_RESOURCE (14), which moved
// ZONE_OPEN_RESOURCE, ZONE_ACTIVE_RESOURCE, OFFLINE and DURATION_LIMIT down by one, so that 17 is
// OFFLINE on 6.1 and DURATION_LIMIT on 6.12. Those are not named. 18 and 19 have only had one
// meaning each: DURATION_LIMIT in 6.5 to 6.9, INVAL from 6.11.
func blkStatuses() [20]blkStatus {
	return [...]blkStatus{
		0:  {"OK", 0},
		1:  {"NOTSUPP", unix.EOPNOTSUPP},
		2:  {"TIMEOUT", unix.ETIMEDOUT},
		3:  {"NOSPC", unix.ENOSPC},
		4:  {"TRANSPORT", unix.ENOLINK},
		5:  {"TARGET", unix.EREMOTEIO},
		6:  {"RESV_CONFLICT", unix.EBADE},
		7:  {"MEDIUM", unix.ENODATA},
		8:  {"PROTECTION", unix.EILSEQ},
		9:  {"RESOURCE", unix.ENOMEM},
		10: {"IOERR", unix.EIO},
		11: {"DM_REQUEUE", unix.EREMCHG},
		12: {"AGAIN", unix.EAGAIN},
		13: {"DEV_RESOURCE", unix.EBUSY},
		18: {"DURATION_LIMIT", unix.ETIME},
		19: {"INVAL", unix.EINVAL},
	}
}

type blkStatus struct {
	name  string // empty: depends on the kernel
	errno syscall.Errno
}

// BlkStatus returns the name of a blk_status_t ("MEDIUM") and of the errno that it becomes
// ("ENODATA"). For a value whose meaning depends on the kernel it returns "STATUS_<n>" and EIO, as
// the kernel does for an unknown status.
func BlkStatus(status uint8) (name, errno string) {
	if all := blkStatuses(); int(status) < len(all) && all[status].name != "" {
		return all[status].name, ErrnoName(int32(all[status].errno))
	}
	return "STATUS_" + strconv.Itoa(int(status)), "EIO"
}

// BlkStatusOfErrno returns the name of the blk_status_t that becomes errno n (of either sign), for
// kernels whose tracepoints pass the errno (5.10), or "" if there is none. Every status unknown to
// the kernel becomes EIO too, so for EIO the result is likely but not certain.
func BlkStatusOfErrno(n int32) string {
	if n < 0 {
		n = -n
	}
	for _, s := range blkStatuses() {
		if n > 0 && s.errno == syscall.Errno(n) {
			return s.name
		}
	}
	return ""
}
