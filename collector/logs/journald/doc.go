// Package journald reads systemd's journal by running journalctl.
//
// # Why a child process
//
// There are three ways to read the journal:
//
//   - libsystemd (github.com/coreos/go-systemd/sdjournal) needs cgo and a shared
//     library. Elastic's Filebeat replaced it with journalctl, because it crashed with SIGBUS on
//     several distributions (elastic/beats#39820, #34077, #32782).
//   - Readers in Go: github.com/Velocidex/go-journalctl is a forensic parser of one file, without
//     merging and cursors. github.com/netdata/systemd-journal-sdk/go supports everything, but is
//     part of a large SDK with a writer, from 2026 and before its version 1. The module proxy that
//     this project builds from has neither. go-systemd's maintainers recommend journalctl for
//     programs without cgo (coreos/go-systemd#457).
//   - journalctl comes from the same build as the journald that writes, so it reads
//     whatever that writes: compressed, compact, sealed, a newer format. It dies if a file
//     is vacuumed while it reads it ("Bad message", systemd#18787, #43649), but it is
//     another process and is restarted at the cursor.
//
// The export format is specified and stable (https://systemd.io/JOURNAL_EXPORT_FORMATS). It is
// this package's only interface to the journal, so a reader of the files could replace journalctl.
//
// # How journalctl is called
//
// "--cursor", which begins with the entry of the cursor, and not "--after-cursor": until the end
// of 2023 the latter dropped an entry if the cursor's entry did not match the filter
// (systemd#30288, #38912). If the first entry is not the cursor's, the cursor's entry is gone, which
// is reported as a Loss. "--merge", because "--follow" shows only the current boot since v250
// (systemd#36102), also with "--boot=all" in v252; _MACHINE_ID excludes what other machines have
// sent to this one.
//
// # Folders
//
// journalctl prints nothing and reports no error without journal files, so a Reader checks that
// journald's folders have some before it starts journalctl. A running journalctl watches only the
// folders that existed when it was started (systemd#8262), so it is restarted at the cursor when
// the other one is created, for example by "journalctl --flush".
//
// # Losses
//
// journald logs when it drops messages of a unit that logs too much (N_DROPPED), and when the
// kernel's log was overwritten before it was read. Both are requested in addition to the filter, and
// reported as Suppressed and Overrun.
//
// # Origin
//
// SYSLOG_IDENTIFIER is chosen by the writer. Origin is [event.OriginKernel] only for what journald
// read from the kernel's log with the kernel's facility; the origin of others that call themselves
// "kernel" begins with [Unverified]. An entry of the kernel's log is one line, as in package kmsg:
// the text behind a newline, which may come from the name of a file, would look like a kernel
// message. _TRANSPORT and _SYSTEMD_UNIT are determined by journald itself.
//
// # Where it runs
//
// The child is the host's journalctl: in a container it runs below Root, by chroot. It has a
// process group of its own, which is killed with the context. The kernel kills the child when this
// process dies.
package journald
