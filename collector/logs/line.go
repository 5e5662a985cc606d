package logs

import (
	"fmt"
	"regexp"
	"time"

	"github.com/kernosis/kernosis/collector/event"
)

// Line is one line of a log. It is valid only during the call that hands it over.
//
// Text is untrusted input: anybody may have logged it. Only its length is bounded.
type Line struct {
	// Time is the wall clock time according to the log, or of reading if the log has none.
	Time time.Time
	// BootTime is the time since boot (CLOCK_BOOTTIME) of a line of this boot; 0 if unknown.
	BootTime time.Duration
	// Seq is the number of the line. It is the same each time the line is read: the sequence
	// number of kmsg and journald; for a file, a count of lines that the Position holds. It grows
	// within a boot, a journal, or a file with its rotations. 0 if there is none.
	Seq uint64
	// Stamp is when the kernel printed the line, by the clock of its own time stamps; 0 if
	// unknown, or if the line is not from the kernel.
	Stamp time.Duration
	// Priority is emerg, alert, crit, err, warning, notice, info or debug; "" if the log has none.
	Priority string
	// Origin is the writer, as far as it is certain: [event.OriginKernel] or the facility (kmsg), the path
	// (file), the syslog identifier, unit or command (journald). See [Line.Author].
	Origin string
	// Unit is the systemd unit of the writer, if the source knows it.
	Unit string
	// Text is the line without its line end and without the contents of the other fields. A
	// journal entry of several lines has them all, separated by "\n". A record of the kernel's log
	// is one line, in which a newline is "\x0a".
	Text []byte
	// Continues is set if the text continues an earlier line, which need not be the one before.
	Continues bool
}

// PriorityName returns the name of a syslog level, 0 (emerg) to 7 (debug); "" for any other number.
func PriorityName(level int) string {
	if level < 0 || level >= len(priorityNames) {
		return ""
	}
	return priorityNames[level]
}

//nolint:gochecknoglobals // a constant
var priorityNames = [...]string{"emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"}

// crash matches the kernel's message about a crashed process. Most of these begin with the name
// that the process gave itself and often name a file later on; both can contain the words of any
// other message.
//
// The expression matches what the kernel prints after the name. The name has at most 15 bytes
// (TASK_COMM_LEN), its control characters appear as "\xNN" in [Line.Text], and it may itself
// contain "[1]: ". The kernel prints more behind the "]" than a name could hold. So a process can't use
// its name to make another message, such as that of a hung task, look like a crash.
//
//	app[12]: segfault at 0 ip … sp … error 4 in app[…]           x86 (arch/x86/mm/fault.c), sparc
//	app[12]: segfault (11) at 0 nip … lr … code 1 in app[…]      powerpc; also "bus error" and others
//	app[12]: unhandled exception: DABT …, in app[…]              arm64; "unhandled signal" riscv
//	app[12]: unhandled level 2 translation fault (11) at 0x…     arm64 before 4.20, arm
//	traps: app[12] trap invalid opcode ip:… sp:… error:0 in app[…]
//	app[12] bad frame in rt_sigreturn frame:… ip:… sp:… orax:… in app[…]
//	traps: app[12] attempts to use CLI/STI, pretending it's a NOP, ip:… in app[…]
//	app.bin: app: potentially unexpected fatal signal 11.        kernel/signal.c (kernel.print-fatal-signals)
var crash = regexp.MustCompile(`(?s)^(?:traps: )?(?:\\x[0-9a-f]{2}|.){0,15}?\[\d+\](?:` +
	`: segfault at [0-9a-f]|: [a-z ]+ \(\d+\) at [0-9a-f]+ nip [0-9a-f]` +
	`|: unhandled (?:exception: |signal \d+ code 0x|[\w ()]*fault \(\d+\) at 0x)` +
	`| .* ip:[0-9a-f]+ (?:cs:[0-9a-f]+ )?sp:[0-9a-f]+ [a-z]+:| attempts to use CLI/STI)` +
	`|: potentially unexpected fatal signal \d+\.$`)

// Author returns [event.OriginProcess] for a kernel line whose text begins with text that a process chose:
// a crash, or the rest of a message that others interrupted. For any other line it returns Origin.
func (l *Line) Author() string {
	if l.Origin == event.OriginKernel && (l.Continues || crash.Match(l.Text)) {
		return event.OriginProcess
	}
	return l.Origin
}

// EscapeControl returns a kernel message as one line: each control character becomes "\xNN", as
// /dev/kmsg prints it. Text without control characters is returned as it is.
func EscapeControl(text []byte) []byte {
	for i, c := range text {
		if c < ' ' || c == 0x7f {
			out := append(make([]byte, 0, len(text)+16), text[:i]...)
			for _, c := range text[i:] {
				if c < ' ' || c == 0x7f {
					out = fmt.Appendf(out, `\x%02x`, c)
				} else {
					out = append(out, c)
				}
			}
			return out
		}
	}
	return text
}

// Reason is why lines were lost. Reasons are API: metrics and rules name them.
type Reason string

// The reasons for a Loss.
const (
	// Overrun: the log was overwritten before it was read. The number is exact.
	Overrun Reason = "overrun"
	// Truncated: a file was truncated, and no copy of its contents was found.
	Truncated Reason = "truncated"
	// Rotated: the lines after the position were rotated away or vacuumed, or are in a file that can't be
	// read.
	Rotated Reason = "rotated"
	// TooLong: the lines were longer than the limit. Except by kmsg, they were handed over without ends.
	TooLong Reason = "too-long"
	// Malformed: the lines could not be parsed.
	Malformed Reason = "malformed"
	// Suppressed: journald dropped lines of a unit that logs too much.
	Suppressed Reason = event.LostSuppressed
	// BadPosition: the saved position is not one of this log, so reading began as without one.
	BadPosition Reason = "bad-position"
)

// Loss reports lost lines, at the place in the stream where they would have come.
type Loss struct {
	Reason Reason
	// Lines is the number of lost lines; 0 if unknown, possibly none.
	Lines uint64
	// Bytes is how much text was lost, if known: the ends of lines that were too long.
	Bytes uint64
}

// Item is a line or a loss: exactly one of them is non-nil.
type Item struct {
	Line *Line
	Loss *Loss
}

// Position is a reader's place in a log, as text that can be saved and given to the next reader of
// the same log; "" if there is none. Its format is up to the source.
type Position string
