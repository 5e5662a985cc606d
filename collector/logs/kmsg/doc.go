// Package kmsg reads the kernel's log from /dev/kmsg.
//
// One record is one line ([hostfs.ParseKernelRecord]). The ring has a fixed size: when the kernel
// writes faster than the reader reads, records are overwritten, the next read fails with EPIPE and
// the one after returns the oldest record that is left. The sequence numbers then show exactly how
// many were lost, and reading continues.
//
// The Position is the boot id and the next sequence number. Within the same boot, records that
// were handed over are skipped, and those that the ring lost meanwhile are counted. If the
// Position is of an earlier boot, all of this boot is new, from its first record. Without a
// Position, Lookback decides, by the kernel's own time stamps.
//
// # Origin
//
// A process that may open /dev/kmsg for writing can write any text to the log, but not with
// facility 0: the kernel replaces it by LOG_USER (devkmsg_write, kernel/printk/printk.c). So
// facility 0 means that the kernel printed the record, and rules can require it with
// [event.OriginKernel].
//
// It doesn't mean that the kernel chose the text: its messages contain names of processes, files
// and devices. [logs.Line.Author] detects those that begin with such a name.
//
// # Text
//
// The device escapes every byte that is not printable ASCII as \xNN. Bytes of UTF-8 and the
// backslash are restored; control characters stay escaped, so that a record is always one line. A
// text that contains "\x0a" literally looks the same as one with an escaped line feed.
//
// # Time
//
// Time stamps come from the scheduler's clock (local_clock), which is not slewed by NTP and stands
// still during suspend. When the reader waits for a record, that record shows the current offset
// to CLOCK_BOOTTIME; the times of older records are as exact as that offset. Before the first such
// record, the offset is assumed to equal the time spent in suspend.
package kmsg
