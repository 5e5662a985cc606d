// Package crash reads what the kernel of an earlier boot printed before it panicked, from the
// records that pstore and kdump keep over the reboot.
//
// # Records
//
//   - /sys/fs/pstore/dmesg-*: what the kernel stored in firmware (efi, erst) or reserved memory
//     (ramoops). A long record is several files. Each begins with a line such as "Panic#2 Part3",
//     and Part1 is the end of the text (pstore_dump, fs/pstore/platform.c).
//   - /var/lib/systemd/pstore: the same files, where systemd-pstore moves them at boot.
//   - /var/crash/*/dmesg.* (Debian) and vmcore-dmesg*.txt (RHEL): the kernel's log of kdump.
//
// Records of an oops that the kernel survived are not read: it was in that boot's log. A file
// that the kernel could not decompress (".enc.z") is a Loss.
//
// Of each file the last 256 KiB are read, and the 64 newest files. The folders are listed once a
// minute, and files are read only if something has changed.
//
// # Lines
//
// Each record is handed over as a whole, with the time of its file. Seq counts its lines: 1 begins
// a record. If no line says why the kernel panicked (for example when kdump starts right after an
// oops), a last line with the Origin [event.CrashLog] says so.
//
// pstore keeps the facility of each line, so Origin is [event.OriginKernel] only for what the
// kernel printed. kdump's text has none: all of it counts as the kernel's, as only root writes to
// the kernel's log. Of /var/crash, only root's files are read: on some systems everybody may write
// there.
//
// # Position
//
// A panic is identified by its line and the kernel's time stamp, so that it is handed over once
// even if several files contain it. Without a Position, Lookback says how long before this boot a
// record may have been written. Older records are never read. A Position that is later than this
// boot was saved while the clock was ahead: Lookback replaces its time.
package crash
