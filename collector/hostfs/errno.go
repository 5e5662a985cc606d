package hostfs

import (
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrnoName returns the name of an errno value of either sign: "EIO" for 5 and
// -5, "ERRNO_<n>" for one without a name, "" for 0.
func ErrnoName(n int32) string {
	e := int64(n)
	if e < 0 {
		e = -e
	}
	if e == 0 {
		return ""
	}
	if name := unix.ErrnoName(syscall.Errno(e)); name != "" {
		return name
	}
	switch e {
	// include/linux/errno.h: for the kernel's own use, but seen in block
	// completions (ENOTSUPP) and on sockets.
	case 512:
		return "ERESTARTSYS"
	case 524:
		return "ENOTSUPP"
	}
	return "ERRNO_" + strconv.FormatInt(e, 10)
}

// blkStatuses is blk_errors of the kernel's block/blk-core.c by the values of
// include/linux/blk_types.h. They are macros, so BTF does not have them.
//
// Values 0 to 13 are the same on every kernel since 5.10 (6 was called NEXUS
// before 6.5, with the same meaning). From 14 on they depend on the kernel: 6.10
// removed ZONE_RESOURCE (14), which moved ZONE_OPEN_RESOURCE,
// ZONE_ACTIVE_RESOURCE, OFFLINE and DURATION_LIMIT down by one, so that 17 is
// OFFLINE on 6.1 and DURATION_LIMIT on 6.12. Those are not named. 18 and 19 have
// had one meaning only: DURATION_LIMIT of 6.5 to 6.9, INVAL from 6.11.
var blkStatuses = [...]struct {
	name  string
	errno syscall.Errno
}{
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

// BlkStatus returns the name of a blk_status_t ("MEDIUM") and that of the errno
// it becomes ("ENODATA"). A value whose meaning depends on the kernel is
// "STATUS_<n>" and EIO, the kernel's own answer to one it does not know.
func BlkStatus(status uint8) (name, errno string) {
	if int(status) < len(blkStatuses) && blkStatuses[status].name != "" {
		s := blkStatuses[status]
		return s.name, ErrnoName(int32(s.errno))
	}
	return "STATUS_" + strconv.Itoa(int(status)), "EIO"
}

// blkStatusNames is the way back from an errno, for kernels whose tracepoints
// give the errno of a blk_status_t (5.10). EIO is what every unknown one
// becomes too, so it is the most likely, not the certain one.
var blkStatusNames = func() map[syscall.Errno]string {
	m := make(map[syscall.Errno]string, len(blkStatuses))
	for _, s := range blkStatuses {
		if s.errno != 0 {
			m[s.errno] = s.name
		}
	}
	return m
}()

// BlkStatusOfErrno returns the name of the blk_status_t that becomes errno n (of
// either sign), as errno_to_blk_status does; "" where there is none.
func BlkStatusOfErrno(n int32) string {
	if n < 0 {
		n = -n
	}
	return blkStatusNames[syscall.Errno(n)]
}
