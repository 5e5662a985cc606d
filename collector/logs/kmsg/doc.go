// Package kmsg reads the kernel's log from /dev/kmsg.
//
// One record is one line ([Parse]). The ring has a fixed size: when the kernel
// writes faster than we read, records are written over, the next read says EPIPE
// and the one after gives the oldest record that is left. The sequence numbers
// then show exactly how many are gone, and reading goes on.
//
// The Position is the boot id and the next sequence number. Of the same boot,
// what was handed over is passed by, and what the ring lost meanwhile is
// counted. Of an earlier boot, all of this boot is new, from its first record.
// Without one, Lookback decides, by the kernel's own time stamps.
//
// # Who wrote it
//
// Whoever may open /dev/kmsg for writing can write any text to the log, but not
// with facility 0: the kernel gives LOG_USER to writers that claim it
// (devkmsg_write, kernel/printk/printk.c). So facility 0 says that the kernel has
// printed the record, and rules that care ask for [event.OriginKernel].
//
// It doesn't say that the kernel chose the text: names of processes, files and
// devices stand in its messages. [logs.Line.Author] distinguishes those that begin
// with them.
//
// # Text
//
// The device escapes every byte that is not printable ASCII as \xNN. Bytes of
// UTF-8 and the backslash are restored; control characters stay escaped, so that
// a record is one line, whoever wrote it. A text that contains "\x0a" literally
// looks the same as one with an escaped line feed.
//
// # Time
//
// Time stamps are of the scheduler's clock (local_clock), which is not slewed by
// NTP and stands still during suspend. A record that was waited for reports how far
// it is from CLOCK_BOOTTIME by now; older records are as exact as that. Before the
// first such record the difference is taken to be the time in suspend.
package kmsg
