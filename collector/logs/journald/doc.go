// Package journald reads systemd's journal by running journalctl.
//
// # Why a child
//
// Three ways were looked at:
//
//   - libsystemd (github.com/coreos/go-systemd/sdjournal) needs cgo and a shared
//     library. Elastic's Filebeat left it for journalctl because it died of SIGBUS
//     on several distributions (elastic/beats#39820, #34077, #32782).
//   - Readers in Go: github.com/Velocidex/go-journalctl is a forensic parser, a
//     few commits, without tests of its own in Go, that looks at one file: no
//     merging of files, no cursor. github.com/netdata/systemd-journal-sdk/go has
//     all (compact files, keyed hashes, zstd, lz4 and xz, directories, cursors,
//     tests against systemd), as a part of a large SDK with a writer, of 2026 and
//     before its version 1. Neither is served by the module proxy that this
//     project builds from. go-systemd's maintainers name journalctl as the way
//     without cgo (coreos/go-systemd#457).
//   - journalctl is of the same build as the journald that writes, so it reads
//     whatever that writes: compressed, compact, sealed, a newer format. It dies
//     of a file that is vacuumed under its hands ("Bad message", systemd#18787,
//     #43649), but that is another process: it is started again at the cursor.
//
// The export format is specified and stable
// (https://systemd.io/JOURNAL_EXPORT_FORMATS), and this package's only contact
// with the journal, so that a reader of files can take its place.
//
// # What journalctl is asked
//
// "--cursor", which begins with the entry the cursor is of, and not
// "--after-cursor": until the end of 2023 that one dropped an entry when the
// cursor's was not among those that match (systemd#30288, #38912). The first entry is compared
// with the cursor and dropped if it is that one; if it is not, that one is gone,
// which is reported as a Loss. "--merge", because "--follow" shows only the current
// boot since v250 (systemd#36102), also with "--boot=all" in v252; what other
// machines have sent to this one is kept out by _MACHINE_ID.
//
// # Losses
//
// journald logs when it drops messages of a unit that logs too much (N_DROPPED), and
// when the kernel's log was overwritten before it was read. Both are requested in
// addition to the filter, and reported as Suppressed.
//
// # Who wrote it
//
// SYSLOG_IDENTIFIER is what the writer says it is. Origin is
// [event.OriginKernel] only for what journald has read of the kernel's log with
// the kernel's facility; others that call themselves "kernel" begin with
// [Unverified]. An entry of the kernel's log is one line, as in package kmsg: what is
// behind a newline would else begin like a message of the kernel's, and may be from
// the name of a file. _TRANSPORT and _SYSTEMD_UNIT are journald's own findings.
//
// # Where it runs
//
// The child is journalctl of the host: below Root, by chroot, in a container. It
// is of a process group of its own that is killed with the context, and is killed
// by the kernel when this process dies.
package journald
