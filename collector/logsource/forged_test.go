package logsource

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"
	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/logpattern"
	"github.com/kernosis/kernosis/collector/logs"
	"github.com/kernosis/kernosis/collector/logs/file"
	"github.com/kernosis/kernosis/collector/logs/journald"
	"github.com/kernosis/kernosis/collector/logs/kmsg"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
)

// carrier is a kernel message that contains a user's text: the name of a process, of which the
// kernel keeps 15 bytes, and a longer one of a file, a device, an option.
type carrier struct {
	source string // in the kernel; of version 6.12 unless it names another
	print  func(name, file string) string
	// rules may report it. The rule for crashes also accepts a file's name in other messages: it
	// is of level info, and anybody with such a file can crash as well.
	rules []string
}

// carriers returns the messages that a process or a device can cause without privileges, or with
// those of a container. They were found by searching 6.12 for formats with comm, %pD, %pd.
func carriers() []carrier {
	f := fmt.Sprintf
	crash := []string{"segfault"}
	return []carrier{
		{"arch/x86/mm/fault.c", func(n, p string) string {
			return f("%s[4711]: segfault at 0 ip 000055d0c0de1139 sp 00007ffd8f2b0a10 error 4 in %s[1139,55d0c0de1000+1000] likely on CPU 1 (core 1, socket 0)", n, p)
		}, crash},
		{"arch/x86/mm/fault.c of 6.0", func(n, p string) string {
			return f("%s[4711]: segfault at 0 ip 000055d0c0de1139 sp 00007ffd8f2b0a10 error 4 in %s[55d0c0de1000+1000]", n, p)
		}, crash},
		{"mm/memory.c, the end of the line above as a record of its own", func(_, p string) string {
			return f("\x00 in %s[1139,55d0c0de1000+1000]", p)
		}, crash},
		{"arch/x86/kernel/traps.c", func(n, p string) string {
			return f("traps: %s[4711] trap invalid opcode ip:55d0c0de1139 sp:7ffd8f2b0a10 error:0 in %s[1139,55d0c0de1000+1000]", n, p)
		}, crash},
		{"arch/x86/kernel/traps.c of 5.4", func(n, p string) string {
			return f("%s[4711] general protection fault ip:55d0c0de1139 sp:7ffd8f2b0a10 error:0 in %s[55d0c0de1000+1000]", n, p)
		}, crash},
		{"arch/x86/kernel/cet.c", func(n, p string) string {
			return f("%s[4711] control protection ip:55d0c0de1139 sp:7ffd8f2b0a10 ssp:7ffd8f2b0a10 error:1(near ret) in %s[1139,55d0c0de1000+1000]", n, p)
		}, crash},
		{"arch/x86/kernel/signal.c", func(n, p string) string {
			return f("%s[4711] bad frame in rt_sigreturn frame:000000001 ip:55d0c0de1139 sp:7ffd8f2b0a10 orax:ffffffffffffffff in %s[1139,55d0c0de1000+1000]", n, p)
		}, crash},
		{"arch/x86/entry/vsyscall", func(n, _ string) string {
			return f("%s[4711] vsyscall read attempt denied -- look up the vsyscall kernel parameter if you need a workaround ip:ffffffffff600000 cs:33 sp:7ffd8f2b0a10 ax:0 si:0 di:0", n)
		}, crash},
		{"arch/x86/kernel/umip.c", func(n, _ string) string {
			return f("umip: %s[4711] ip:55d0c0de1139 sp:7ffd8f2b0a10: SGDT instruction cannot be used by applications.", n)
		}, crash},
		{"arch/arm64/mm/fault.c of 4.19", func(n, p string) string {
			return f("%s[4711]: unhandled level 2 translation fault (11) at 0x00000000, esr 0x92000006, in %s[400000+1000]", n, p)
		}, crash},
		{"arch/arm64/kernel/traps.c", func(n, p string) string {
			return f("%s[4711]: unhandled exception: DABT (lower EL), ESR 0x0000000092000006, level 2 translation fault in %s[1139,400000+1000]", n, p)
		}, crash},
		{"arch/riscv/kernel/traps.c", func(n, p string) string {
			return f("%s[4711]: unhandled signal 11 code 0x1 at 0x0000000000000000 in %s[1139,10000+1000]", n, p)
		}, crash},
		{"arch/powerpc/kernel/traps.c", func(n, p string) string {
			return f("%s[4711]: segfault (11) at 0 nip 10000540 lr 7fff8a1b4e30 code 1 in %s[540,10000000+10000]", n, p)
		}, crash},
		{"kernel/signal.c", func(n, p string) string { return f("%s: %s: potentially unexpected fatal signal 11.", p, n) }, crash},
		{"kernel/signal.c of 6.6", func(n, _ string) string { return f("%s: potentially unexpected fatal signal 11.", n) }, nil},
		{"kernel/signal.c, the limit of signals", func(n, _ string) string { return f("%s/4711: reached RLIMIT_SIGPENDING, dropped signal 34", n) }, nil},
		{"kernel/exit.c", func(n, _ string) string { return f("%s (4711) used greatest stack depth: 10864 bytes left", n) }, nil},
		{"mm/mremap.c", func(n, _ string) string {
			return f("%s (4711): attempted to duplicate a private mapping with mremap. This is not supported.", n)
		}, nil},
		{"mm/mmap.c", func(n, _ string) string {
			return f("mmap: %s (4711) uses deprecated remap_file_pages() syscall. See Documentation/mm/remap_file_pages.rst.", n)
		}, nil},
		{"fs/locks.c", func(n, _ string) string { return f("%s(4711): Attempt to set a LOCK_MAND lock via flock(2).", n) }, nil},
		{"net/socket.c", func(n, _ string) string { return f("%s uses obsolete (PF_INET,SOCK_PACKET)", n) }, nil},
		{"net/ipv4/raw.c", func(n, _ string) string { return f("raw_sendmsg: %s forgot to set AF_INET. Fix it!", n) }, nil},
		{"block/blk-core.c", func(n, _ string) string {
			return f("%s: attempt to access beyond end of device\nloop0: rw=0, sector=8, nr_sectors = 8 limit=0", n)
		}, nil},
		{"mm/page_alloc.c", func(n, _ string) string {
			return f("%s: page allocation failure: order:4, mode:0x40dc0(GFP_KERNEL|__GFP_COMP|__GFP_ZERO), nodemask=(null),cpuset=/,mems_allowed=0", n)
		}, []string{"page-allocation-failure"}},
		{"mm/page_alloc.c, the cpuset", func(_, p string) string {
			return f("app: vmalloc error: size 4096, page order 0, failed to allocate pages, mode:0xdc0(GFP_KERNEL|__GFP_ZERO), nodemask=(null),cpuset=%s,mems_allowed=0", p)
		}, nil},
		{"mm/oom_kill.c", func(n, _ string) string {
			return f("%s invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0", n)
		}, nil},
		{"mm/oom_kill.c, the victim", func(n, _ string) string {
			return f("Memory cgroup out of memory: Killed process 4711 (%s) total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:64kB oom_score_adj:0", n)
		}, []string{"oom-kill-victim-log"}},
		{"mm/oom_kill.c, the summary", func(n, p string) string {
			return f("oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=%s,mems_allowed=0,oom_memcg=/demo,task_memcg=/demo,task=%s,pid=4711,uid=0", p, n)
		}, []string{"oom-kill-log", "oom-kill-frequent-log", "oom-kill-frequent-node-log"}},
		{"mm/memcontrol.c", func(_, p string) string { return f("Memory cgroup stats for /%s:", p) }, nil},
		{"kernel/cgroup/pids.c", func(_, p string) string { return f("cgroup: fork rejected by pids controller in /%s", p) }, []string{"pid-limit"}},
		{"kernel/hung_task.c", func(n, _ string) string { return f("INFO: task %s:4711 blocked for more than 120 seconds.", n) },
			[]string{"task-hung-log", "kernel-deadlock-log"}},
		{"kernel/hung_task.c, whom it waits for", func(n, _ string) string {
			return f("INFO: task %s:4711 blocked on a mutex likely owned by task %s:4712.", n, n)
		}, []string{"task-hung-holder-log"}},
		{"mm/memory-failure.c", func(n, _ string) string {
			return f("Memory failure: 0x12345: Sending SIGBUS to %s:4711 due to hardware memory corruption", n)
		}, []string{"memory-failure-user"}},
		{"arch/x86/mm/fault.c, memory", func(n, _ string) string {
			return f("MCE: Killing %s:4711 due to hardware memory corruption fault at 7f3a12345000", n)
		}, []string{"memory-failure-user"}},
		{"kernel/sched/core.c", func(n, _ string) string { return f("task:%-15s state:D stack:0     pid:4711", n) }, nil},
		{"kernel/watchdog.c", func(n, _ string) string { return f("watchdog: BUG: soft lockup - CPU#1 stuck for 26s! [%s:4711]", n) },
			[]string{"soft-lockup", "soft-lockup-lasting"}},
		{"kernel/panic.c of 6.19", func(n, _ string) string { return f("WARNING: mm/slub.c:1 at f+0x1/0x2, CPU#1: %s/4711", n) }, []string{"kernel-warning"}},
		{"lib/dump_stack.c", func(n, _ string) string { return f("CPU: 1 UID: 0 PID: 4711 Comm: %.20s Not tainted 6.12.0 #1", n) }, nil},
		{"mm/debug.c", func(n, _ string) string { return f("BUG: Bad page state in process %s  pfn:12345", n) }, []string{"kernel-bug"}},
		{"kernel/sched/core.c, atomic", func(n, _ string) string { return f("BUG: scheduling while atomic: %s/4711/0x00000002", n) }, []string{"kernel-bug"}},
		{"kernel/locking/lockdep.c", func(n, _ string) string { return f("%s/4711 is trying to acquire lock:", n) }, nil},
		{"kernel/audit.c", func(n, p string) string {
			return f(`audit: type=1701 audit(1700000000.123:45): auid=0 uid=0 gid=0 ses=1 pid=4711 comm="%s" exe="/tmp/%s" sig=11 res=1`, n, p)
		}, nil},
		{"kernel/seccomp.c", func(n, p string) string {
			return f(`audit: type=1326 audit(1700000000.123:46): comm="%s" exe="%s" sig=31 arch=c000003e syscall=1`, n, p)
		}, nil},
		{"fs/exec.c", func(_, p string) string { return f("process '%s' started with executable stack", p) }, crash},
		{"fs/exec.c, no arguments", func(n, p string) string {
			return f("process '%s' launched '%s' with NULL argv: empty string added", n, p)
		}, crash},
		{"kernel/capability.c", func(n, _ string) string {
			return f("warning: `%s' uses 32-bit capabilities (legacy support in use)", n)
		}, nil},
		{"kernel/sysctl.c", func(n, _ string) string {
			return f("%s wrote to kernel.x when file position was not 0!\nThis will not be supported in the future. To silence this\nwarning, set kernel.sysctl_writes_strict = -1", n)
		}, nil},
		{"fs/fs_context.c", func(_, p string) string { return f("tmpfs: Unknown parameter '%s'", p) }, nil},
		{"fs/overlayfs/super.c", func(_, p string) string { return f("overlayfs: failed to resolve '/%s': -2", p) }, nil},
		{"fs/ext4/super.c", func(_, p string) string {
			return f(`EXT4-fs (loop0): Unrecognized mount option "%s" or missing value`, p)
		}, nil},
		{"fs/ext4/super.c, an error", func(n, p string) string {
			return f("EXT4-fs error (device loop0): ext4_find_dest_de:2103: inode #12: block 8: comm %s: path /%s: bad entry in directory", n, p)
		}, []string{"ext4-error-log"}},
		{"fs/btrfs/super.c", func(_, p string) string { return f("BTRFS error (device loop0): unrecognized mount option '%s'", p) }, nil},
		{"net/core/dev.c", func(n, _ string) string { return f("%s: renamed from eth0", noSpace(n)) }, nil},
		{"net/core/dev.c, promiscuous", func(n, _ string) string { return f("device %s entered promiscuous mode", noSpace(n)) }, nil},
		{"net/bridge", func(n, _ string) string {
			return f("%s: port 1(%[1]s) entered blocking state", noSpace(n))
		}, nil},
		{"drivers/usb/core/hub.c", func(_, p string) string { return f("usb 1-1: Product: %s", p) }, nil},
		{"drivers/usb/core/hub.c, the number", func(_, p string) string { return f("usb 1-1: SerialNumber: %s", p) }, nil},
		{"drivers/input/input.c", func(_, p string) string { return f("input: %s as /devices/virtual/input/input7", p) }, crash},
		{"drivers/scsi/scsi_scan.c", func(n, _ string) string {
			return f("scsi 2:0:0:0: Direct-Access     %.8s %.16s 1.0  PQ: 0 ANSI: 6", n, n)
		}, nil},
		{"kernel/module", func(n, _ string) string { return f("%s: module license 'unspecified' taints kernel.", noSpace(n)) }, []string{"kernel-tainted"}},
	}
}

// noSpace converts a name to one that a network device or module may have.
func noSpace(name string) string {
	return strings.NewReplacer(" ", "_", ":", "_", "/", "_", "\n", "_").Replace(name)
}

// genuine returns the lines of the shipped rules' tests that match a pattern.
func genuine(t *testing.T, set *logpattern.Set) (out []string) {
	t.Helper()
	names, err := fs.Glob(detector.Shipped(), "klog-*_test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	m, hits := set.NewMatcher(KMsg, event.KernelLogs), logpattern.Hits{}
	for _, name := range names {
		data, err := fs.ReadFile(detector.Shipped(), name)
		if err != nil {
			t.Fatal(err)
		}
		var file struct {
			Tests []struct {
				Events []struct {
					Like  string
					Event struct{ Log struct{ Text string } }
				}
			}
		}
		if err := yaml.Unmarshal(data, &file); err != nil {
			t.Fatal(err)
		}
		for _, test := range file.Tests {
			for _, e := range test.Events {
				if text := e.Event.Log.Text; e.Like != "forged" && !slices.Contains(out, text) && m.Match([]byte(text), &hits) {
					out = append(out, text)
				}
			}
		}
	}
	if len(out) < 100 {
		t.Fatalf("%d lines of tests match", len(out))
	}
	return out
}

// forgery is a line that contains the text of another line, chosen by a user.
type forgery struct {
	text     string
	carrier  carrier
	fragment bool
	stamp    time.Duration // the kernel's; 0: a second ago
}

// forgeries returns all carriers with all lines in them: as name, as file, begun in one and ended
// in the other, and as lines of their own.
func forgeries(lines []string) (out []forgery) {
	const commLen = 15
	seen := make(map[string]bool)
	name := func(s string) string { return s[:min(len(s), commLen)] }
	shortest := append([]string{"0x1: Killing", "ata1: error: { "}, shortened(lines)...)
	for _, c := range carriers() {
		add := func(n, p string) {
			text, fragment := strings.CutPrefix(c.print(n, p), "\x00")
			if !seen[text] {
				seen[text] = true
				out = append(out, forgery{text: text, carrier: c, fragment: fragment})
			}
		}
		for _, l := range shortest {
			add(name(l), l)
			if _, behind, ok := strings.Cut(l, ": "); ok {
				add(name(behind), behind)
			}
		}
		for _, l := range lines {
			add(name(l), l)
			add("app", l)
			add("app", l+"\n")
			add("app", "x\n"+l+"\ny")
			add(name("x\n"+l), "app")
			add(l[:min(len(l), commLen-1)]+"\n", "app")
			if _, behind, ok := strings.Cut(l, ": "); ok { // the carrier's own beginning may replace the line's
				add(name(behind), behind)
			}
			for i := range min(len(l), commLen+1) { // begun by the name, ended by the file
				if i == commLen || i > 0 && l[i-1] == ' ' {
					add(l[:i], "y"+l[i:])
				}
			}
			for _, end := range []string{". ", ": ", "] "} { // ended by the file, without what is between
				if i := strings.LastIndex(l, end); i > 0 {
					add(name(l), "y"+l[i:])
				}
			}
		}
	}
	return out
}

// shortened returns the lines with numbers of one digit, of which a name has room for more.
func shortened(lines []string) (out []string) {
	number := regexp.MustCompile(`(0x)[0-9a-f]+|\d+`)
	for _, l := range lines {
		out = append(out, number.ReplaceAllString(l, "${1}1"))
	}
	return out
}

// court judges events by the shipped rules: in an engine without problems, and in one in which
// each line of the rules' tests has been reported.
type court struct {
	set           *detector.RuleSet
	lines         []string
	healthy, sick *detector.Engine
	allowed       []string // rules of the latest carrier
	boot          event.Duration
	now           event.Moment
}

func newCourt(set *detector.RuleSet, lines []string) *court {
	boot := hostfs.BootTime()
	c := &court{set: set, boot: event.Duration(boot), now: event.Moment{Wall: time.Now(), Boot: boot + time.Second}}
	for _, l := range lines { // except lines that resolve a problem
		if slices.ContainsFunc(c.observe(c.engine(nil), byKernel(l)), func(p problem.Problem) bool { return p.State == problem.Firing }) {
			c.lines = append(c.lines, l)
		}
	}
	c.healthy, c.sick = c.engine(nil), c.engine(c.lines)
	return c
}

func (c *court) engine(sick []string) *detector.Engine {
	e := detector.NewEngine(c.set)
	for _, l := range sick {
		c.observe(e, byKernel(l))
	}
	return e
}

func byKernel(text string) *event.Event {
	return &event.Event{Kind: event.Log, Log: &event.LogData{Log: KMsg, Origin: event.OriginKernel, Text: text}}
}

// observe passes the event to an engine as often as the highest threshold requires.
func (c *court) observe(e *detector.Engine, ev *event.Event) (out []problem.Problem) {
	for range 10 {
		c.boot++
		ev.Time, ev.BootTime = c.now.Wall, c.boot
		for _, tr := range e.Observe(ev, c.now) {
			if tr.Problem != nil {
				out = append(out, *tr.Problem)
			}
		}
	}
	return out
}

// judge returns what the event did that its carrier is not allowed to do.
func (c *court) judge(ev *event.Event, allowed []string) (fouls []string) {
	if !slices.Equal(allowed, c.allowed) { // earlier carriers may have set problems that this one must not set
		c.healthy, c.allowed = c.engine(nil), allowed
	}
	for _, p := range c.observe(c.healthy, ev) {
		if p.State == problem.Firing && !slices.Contains(allowed, p.Rule) {
			fouls = append(fouls, p.Rule+" set")
		}
	}
	if len(fouls) > 0 {
		c.healthy = c.engine(nil)
	}
	for _, p := range c.observe(c.sick, ev) {
		if p.State == problem.Resolved {
			fouls = append(fouls, p.Rule+" cleared")
		}
	}
	if slices.ContainsFunc(fouls, func(f string) bool { return strings.HasSuffix(f, " cleared") }) {
		c.sick = c.engine(c.lines)
	}
	slices.Sort(fouls)
	return slices.Compact(fouls)
}

// TestForgedLines checks that no text that a user has chosen sets or clears a problem of a shipped
// rule, whatever kernel message contains it, read from /dev/kmsg or from the journal.
func TestForgedLines(t *testing.T) {
	if raceDetector {
		t.Skip("takes four minutes under the race detector, with one goroutine; the same test runs without it")
	}
	set := shippedRules(t)
	lines := genuine(t, set.PatternSet())
	all := forgeries(lines)
	for _, via := range []struct {
		plugin string
		feed   func(*testing.T, []forgery, func(logs.Item) error)
	}{{KMsg, feedKmsg}, {Journald, feedJournal}, {File, feedFile}} {
		t.Run(via.plugin, func(t *testing.T) {
			forged := all
			if via.plugin != KMsg { // lines without a newline look the same as in kmsg
				forged = slices.DeleteFunc(slices.Clone(all), func(f forgery) bool { return !strings.Contains(f.text, "\n") })
			}
			if via.plugin == File { // where continued records are not marked
				forged = slices.DeleteFunc(forged, func(f forgery) bool { return f.fragment })
			}
			c := newCourt(set, lines)
			config := Config{Name: "any", Plugin: via.plugin}
			if via.plugin == File {
				config.Path, config.Format.Kernel = "/kern.log", true
			}
			s, err := New([]Config{config}, set.PatternSet(), Options{})
			if err != nil {
				t.Fatal(err)
			}
			n, fouls, byWhat := -1, 0, make(map[string]int)
			s.logs[0].emit = func(ev *event.Event) {
				if ev.Kind != event.Log {
					t.Errorf("event %+v", ev)
					return
				}
				f := &forged[n]
				what := c.judge(ev, f.carrier.rules)
				if len(what) == 0 {
					return
				}
				fouls++
				for _, w := range what {
					if byWhat[w]++; byWhat[w] <= 2 {
						t.Errorf("%s: %s by %q, as a line of %s", f.carrier.source, w, f.text, ev.Log.Origin)
					}
				}
			}
			via.feed(t, forged, func(item logs.Item) error {
				if via.plugin != File || !item.Line.Continues {
					n++
				}
				return s.logs[0].handle(item)
			})
			if n+1 != len(forged) {
				t.Errorf("%d lines read of %d", n+1, len(forged))
			}
			t.Logf("%d lines of %d messages imitate %d: %d set or clear something: %v", len(forged), len(carriers()), len(lines), fouls, byWhat)
		})
	}
}

// TestNamesHideNothing checks that a process can't make a message about itself, such as that of a
// hung task, look like a crash.
func TestNamesHideNothing(t *testing.T) {
	set := shippedRules(t)
	for _, c := range carriers() {
		if len(c.rules) == 0 || c.rules[0] == "segfault" || strings.Contains(c.source, "module") {
			continue
		}
		for _, name := range []string{"[1]: segfault a", "a[1]: segfault ", "[1] a ip:0 sp:0", "traps: a[1] ip:", "a[1]: unhandled", "a\n[1]: segfault", "a:1 blocked for"} {
			text := c.print(name, "/a")
			l := logs.Line{Origin: event.OriginKernel, Text: bytes.ReplaceAll([]byte(text), []byte("\n"), []byte(`\x0a`))}
			ev := &event.Event{Kind: event.Log, Log: &event.LogData{Log: KMsg, Origin: l.Author(), Text: string(l.Text)}}
			reported := newCourt(set, nil)
			problems := reported.observe(reported.healthy, ev)
			if !slices.ContainsFunc(problems, func(p problem.Problem) bool { return p.Rule == c.rules[0] }) {
				t.Errorf("%s: nothing reported for %q", c.source, text)
			}
		}
	}
}

// feedKmsg writes the lines in the format of /dev/kmsg to a pipe that keeps records apart, and
// reads that with the real reader.
func feedKmsg(t *testing.T, forged []forgery, handle func(logs.Item) error) {
	t.Helper()
	var fd [2]int
	if err := unix.Pipe2(fd[:], unix.O_DIRECT|unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd[0])
	defer unix.Close(fd[1])
	stamp := hostfs.BootTime().Microseconds() - 1_000_000
	for n := 0; n < len(forged); {
		for ; n < len(forged); n++ {
			flags := '-'
			if forged[n].fragment {
				flags = 'c'
			}
			stamp := stamp
			if at := forged[n].stamp; at != 0 {
				stamp = at.Microseconds()
			}
			record := fmt.Appendf(nil, "6,%d,%d,%c;%s\n", n+1, stamp, flags, escaped(forged[n].text))
			if _, err := unix.Write(fd[1], record); err == unix.EAGAIN {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		r := kmsg.New(kmsg.Config{Path: fmt.Sprintf("/proc/self/fd/%d", fd[0]), Lookback: time.Hour})
		if err := r.Once(t.Context(), handle); err != nil {
			t.Fatal(err)
		}
	}
}

// escaped returns a text in the format of devkmsg_read (append_char, kernel/printk/printk.c).
func escaped(text string) (out []byte) {
	for _, c := range []byte(text) {
		if c < ' ' || c >= 127 || c == '\\' {
			out = fmt.Appendf(out, `\x%02x`, c)
		} else {
			out = append(out, c)
		}
	}
	return out
}

// feedFile writes the lines like rsyslog's imklog, which gets each line of a record with the
// record's time stamp (record_print_text, kernel/printk/printk.c).
func feedFile(t *testing.T, forged []forgery, handle func(logs.Item) error) {
	t.Helper()
	f := newFile(t, "kern.log")
	var b strings.Builder
	at := time.Now().Add(-time.Minute).Format(time.Stamp)
	for n := range forged {
		for l := range strings.SplitSeq(forged[n].text, "\n") {
			fmt.Fprintf(&b, "%s node kernel: [%5d.%06d] %s\n", at, 100+n/1e6, n%1e6, l)
		}
	}
	f.add(b.String())
	r, err := file.New(file.Config{Path: f.path, Format: file.Format{Kernel: true}, Lookback: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Once(t.Context(), handle); err != nil {
		t.Fatal(err)
	}
}

// feedJournal writes the lines to a journal like journald, and reads it with the real reader.
// journald also makes entries of fragments, but doesn't mark them.
func feedJournal(t *testing.T, forged []forgery, handle func(logs.Item) error) {
	t.Helper()
	j := newJournalDir(t)
	var b bytes.Buffer
	at, mono := time.Now().Add(-time.Minute), hostfs.BootTime()-time.Minute
	for n, f := range forged {
		us := int64(n)
		fmt.Fprintf(&b, "__CURSOR=s=%s;i=%x;b=%s;m=%x;t=%x;x=%x\n", strings.Repeat("a", 32), n+1, j.boot, mono.Microseconds()+us, at.UnixMicro()+us, n+1)
		fmt.Fprintf(&b, "__REALTIME_TIMESTAMP=%d\n__MONOTONIC_TIMESTAMP=%d\n_BOOT_ID=%s\n", at.UnixMicro()+us, mono.Microseconds()+us, j.boot)
		fmt.Fprintf(&b, "_MACHINE_ID=%s\n_HOSTNAME=node\nSYSLOG_IDENTIFIER=kernel\n_TRANSPORT=kernel\nSYSLOG_FACILITY=0\nPRIORITY=6\n_SOURCE_MONOTONIC_TIMESTAMP=%d\nMESSAGE\n", strings.Repeat("c", 32), cmp.Or(f.stamp.Microseconds(), mono.Microseconds()+us))
		b.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(f.text))))
		b.WriteString(f.text + "\n\n")
	}
	cmd := exec.CommandContext(t.Context(), j.tool, "--output="+filepath.Join(j.dir, "system.journal"), "-")
	cmd.Stdin, cmd.Stderr = &b, os.Stderr
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	r, err := journald.New(journald.Config{Directory: j.dir, Lookback: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Once(t.Context(), handle); err != nil {
		t.Fatal(err)
	}
}
