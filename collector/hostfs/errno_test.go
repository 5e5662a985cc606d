package hostfs

import (
	"math"
	"testing"
)

func TestErrnoName(t *testing.T) {
	for n, want := range map[int32]string{
		0: "", 5: "EIO", -5: "EIO", 61: "ENODATA", 110: "ETIMEDOUT", 11: "EAGAIN", -117: "EUCLEAN", 35: "EDEADLK", 95: "EOPNOTSUPP", 74: "EBADMSG",
		524: "ENOTSUPP", -512: "ERESTARTSYS", 523: "ERRNO_523", math.MinInt32: "ERRNO_2147483648",
	} {
		if got := ErrnoName(n); got != want {
			t.Errorf("ErrnoName(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestBlkStatus(t *testing.T) {
	for status, want := range map[uint8][2]string{
		0: {"OK", ""}, 1: {"NOTSUPP", "EOPNOTSUPP"}, 2: {"TIMEOUT", "ETIMEDOUT"}, 3: {"NOSPC", "ENOSPC"},
		4: {"TRANSPORT", "ENOLINK"}, 5: {"TARGET", "EREMOTEIO"}, 6: {"RESV_CONFLICT", "EBADE"},
		7: {"MEDIUM", "ENODATA"}, 8: {"PROTECTION", "EILSEQ"}, 9: {"RESOURCE", "ENOMEM"}, 10: {"IOERR", "EIO"},
		11: {"DM_REQUEUE", "EREMCHG"}, 12: {"AGAIN", "EAGAIN"}, 13: {"DEV_RESOURCE", "EBUSY"},
		14: {"STATUS_14", "EIO"}, 17: {"STATUS_17", "EIO"}, 18: {"DURATION_LIMIT", "ETIME"}, 19: {"INVAL", "EINVAL"},
		20: {"STATUS_20", "EIO"}, 255: {"STATUS_255", "EIO"},
	} {
		name, errno := BlkStatus(status)
		if name != want[0] || errno != want[1] {
			t.Errorf("BlkStatus(%d) = %q, %q, want %q", status, name, errno, want)
		}
	}
}

func TestBlkStatusOfErrno(t *testing.T) {
	for n, want := range map[int32]string{
		0: "", -5: "IOERR", 5: "IOERR", -61: "MEDIUM", -28: "NOSPC", -1: "", math.MinInt32: "",
	} {
		if got := BlkStatusOfErrno(n); got != want {
			t.Errorf("BlkStatusOfErrno(%d) = %q, want %q", n, got, want)
		}
	}
}
