package logs

import (
	"regexp"

	"github.com/kernosis/kernosis/collector/event"
)

// crash matches the kernel's message about a crashed process. Most of these begin with the name
// that the process gave itself and often name a file later on; both can contain the words of any
// other message.
//
// The expression matches what the kernel prints after the name. The name has at most 15 bytes
// (TASK_COMM_LEN), its control characters appear as "\xNN" in [Line.Text], and it may itself
// contain "[1]: ". The kernel prints more behind the "]" than a name could hold. So a process
// can't hide a message that has its name elsewhere, such as the message of a hung task.
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

// Author returns [event.OriginProcess] for a kernel line whose text begins with that of a process:
// a crash, or the rest of a message that others interrupted. For any other line it returns Origin.
func (l *Line) Author() string {
	if l.Origin == event.OriginKernel && (l.Continues || crash.Match(l.Text)) {
		return event.OriginProcess
	}
	return l.Origin
}
