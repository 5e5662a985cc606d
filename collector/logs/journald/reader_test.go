package journald

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/logs"
)

// Entries and files of all kinds: each entry is handed over once and in order.
func TestRealJournal(t *testing.T) {
	for _, tt := range []struct {
		name    string
		options []string
		env     string
	}{
		{name: "compressed", options: []string{"--compress=yes"}},
		{name: "not compressed", options: []string{"--compress=no"}},
		{name: "compact", env: "SYSTEMD_JOURNAL_COMPACT=1"},
		{name: "not compact", env: "SYSTEMD_JOURNAL_COMPACT=0"},
		{name: "hashes without key", env: "SYSTEMD_JOURNAL_KEYED_HASH=0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if name, value, ok := strings.Cut(tt.env, "="); ok {
				t.Setenv(name, value)
			}
			j := newJournal(t)
			large := strings.Repeat("compressible text ", 5000)
			j.writeWith(tt.options, "a.journal",
				j.entry("of an earlier boot", "_BOOT_ID", boot1, "PRIORITY", "0", "_TRANSPORT", "kernel", "SYSLOG_IDENTIFIER", "kernel", "SYSLOG_FACILITY", "0"),
				j.entry("plain", "PRIORITY", "6", "SYSLOG_IDENTIFIER", "kubelet", "_SYSTEMD_UNIT", "kubelet.service"),
				j.entry("two\nlines"),
				j.entry(large, "LARGE_BINARY", strings.Repeat("\x00\xff\n", 30_000)),
				j.entry("\x1b[31m\xff\xfe", "_COMM", "comm"),
			)
			c := start(t, Config{Directory: j.dir})
			c.want("of an earlier boot", "plain", "two\nlines", large[:maxMessage], "-too-long:1", "\x1b[31m\xff\xfe")
			c.stop()
			first, second, last := c.lines[0], c.lines[1], c.lines[4]
			if first.Origin != event.OriginKernel || first.Priority != "emerg" || first.Unit != "" || first.BootTime != 0 ||
				time.Since(first.Time) > 3*time.Hour || time.Since(first.Time) < 0 {
				t.Errorf("first line %+v", first)
			}
			if second.Origin != "kubelet" || second.Priority != "info" || second.Unit != "kubelet.service" || second.Seq != first.Seq+1 {
				t.Errorf("second line %+v", second)
			}
			if last.Origin != "comm" || last.Priority != "" {
				t.Errorf("last line %+v", last)
			}
			if lost := c.losses[0]; lost.Bytes != uint64(len(large)-maxMessage) {
				t.Errorf("loss %+v", lost)
			}
		})
	}
}

// Entries that are added while reading are read, in the same file and in another one.
func TestFollow(t *testing.T) {
	j := newJournal(t)
	j.write("a.journal", j.entry("1"))
	c := start(t, Config{Directory: j.dir})
	c.want("1")
	c.until("status up", func() bool { return len(c.status) == 1 && c.status[0] == "up" })
	j.write("b.journal", j.entry("2"), j.entry("3"))
	c.want("1", "2", "3")
	j.write("b.journal", j.entry("4"))
	c.want("1", "2", "3", "4")
	// journald renames a file when it is full.
	if err := os.Rename(filepath.Join(j.dir, "b.journal"), filepath.Join(j.dir, "b@1.journal")); err != nil {
		t.Fatal(err)
	}
	j.write("b.journal", j.entry("5"))
	c.want("1", "2", "3", "4", "5")
}

// Without entries, the journal is reported as being read once journalctl has run for a while.
func TestEmptyJournal(t *testing.T) {
	j := newJournal(t)
	c := start(t, Config{Directory: j.dir})
	c.until("status up", func() bool { return len(c.status) == 1 && c.status[0] == "up" })
	j.write("a.journal", j.entry("1"))
	c.want("1")
	at := c.stop()
	start(t, Config{Directory: j.dir, Position: at}).until("status up", func() bool { return true })
}

func TestRestart(t *testing.T) {
	j := newJournal(t)
	j.write("a.journal", j.entry("1", "_BOOT_ID", boot1), j.entry("2", "_BOOT_ID", boot1))
	c := start(t, Config{Directory: j.dir})
	c.want("1", "2")
	at := c.stop()
	// The machine has been rebooted in the meantime.
	j.write("b.journal", j.entry("3"), j.entry("4"))
	c = start(t, Config{Directory: j.dir, Position: at, Lookback: time.Nanosecond})
	c.want("3", "4")
	at = c.stop()
	// At first there is nothing new, and then there is.
	c = start(t, Config{Directory: j.dir, Position: at})
	c.until("status up", func() bool { return len(c.status) == 1 })
	if c.stop() != at {
		t.Error("the position has changed")
	}
	j.write("b.journal", j.entry("5"))
	start(t, Config{Directory: j.dir, Position: at}).want("5")
}

// A reader that got nothing continues where it began.
func TestRestartBeforeTheFirstEntry(t *testing.T) {
	j := newJournal(t)
	c := start(t, Config{Directory: j.dir, Lookback: 12 * time.Hour})
	c.until("status", func() bool { return len(c.status) > 0 })
	at := c.stop()
	j.write("a.journal", j.entry("1"))
	start(t, Config{Directory: j.dir, Position: at, Lookback: time.Nanosecond}).want("1")
}

func TestVacuumed(t *testing.T) {
	j := newJournal(t)
	j.write("a@1.journal", j.entry("1"), j.entry("2"))
	c := start(t, Config{Directory: j.dir})
	c.want("1", "2")
	at := c.stop()
	j.write("a@2.journal", j.entry("3"))
	j.write("a.journal", j.entry("4"))
	for _, file := range []string{"a@1.journal", "a@2.journal"} {
		if err := os.Remove(filepath.Join(j.dir, file)); err != nil {
			t.Fatal(err)
		}
	}
	c = start(t, Config{Directory: j.dir, Position: at})
	c.want("-rotated:0", "4")
	c.stop()
	// With another filter, the entry may not be among those that match.
	c = start(t, Config{Directory: j.dir, Position: at, Filter: Filter{Identifiers: []string{"app"}}})
	j.write("a.journal", j.entry("5", "SYSLOG_IDENTIFIER", "app"))
	c.want("5")
}

func TestBadPosition(t *testing.T) {
	j := newJournal(t)
	j.write("a.journal", j.entry("1"))
	start(t, Config{Directory: j.dir, Position: "nonsense"}).want("-bad-position:0", "1")
}

func TestLookback(t *testing.T) {
	j := newJournal(t)
	var entries [][]byte
	for i := range 60 {
		entries = append(entries, j.entry(strconv.Itoa(i)))
	}
	j.write("a.journal", entries...)
	begin := time.Now().Add(-time.Hour).Truncate(time.Hour).Add(50*time.Second + time.Second/2)
	c := start(t, Config{Directory: j.dir, Lookback: time.Since(begin)})
	c.until("lines", func() bool { return len(c.items) > 0 && c.items[len(c.items)-1] == "59" })
	if c.items[0] != "50" || len(c.items) != 10 {
		t.Errorf("got %q", c.items)
	}
}

func TestFilters(t *testing.T) {
	j := newJournal(t)
	j.write("a.journal",
		j.entry("kernel 1", "SYSLOG_IDENTIFIER", "kernel", "_TRANSPORT", "kernel", "PRIORITY", "1"),
		j.entry("kubelet 2", "SYSLOG_IDENTIFIER", "kubelet", "_TRANSPORT", "stdout", "_SYSTEMD_UNIT", "kubelet.service", "PRIORITY", "6"),
		j.entry("forged 3", "SYSLOG_IDENTIFIER", "kernel", "_TRANSPORT", "syslog", "PRIORITY", "1", "_SYSTEMD_UNIT", "x.service"),
		j.entry("to kmsg 4", "SYSLOG_IDENTIFIER", "kernel", "_TRANSPORT", "kernel", "SYSLOG_FACILITY", "1", "PRIORITY", "1"),
		j.entry("sshd 5", "SYSLOG_IDENTIFIER", "sshd", "_TRANSPORT", "syslog", "_SYSTEMD_UNIT", "ssh.service", "PRIORITY", "4"),
		j.entry("Suppressed 12 messages from kubelet.service", "MESSAGE_ID", messageDropped, "N_DROPPED", "12", "_TRANSPORT", "driver", "SYSLOG_IDENTIFIER", "systemd-journald", "PRIORITY", "4"),
		j.entry("Missed 34 kernel messages", "MESSAGE_ID", messageMissed, "_TRANSPORT", "driver", "SYSLOG_IDENTIFIER", "systemd-journald", "PRIORITY", "4"),
		j.entry("kubelet 8", "SYSLOG_IDENTIFIER", "kubelet", "_TRANSPORT", "stdout", "_SYSTEMD_UNIT", "kubelet.service", "PRIORITY", "3"),
	)
	const suppressed, missed = "-suppressed:12", "-overrun:34"
	all := []string{
		"kernel 1", "kubelet 2", "forged 3", "to kmsg 4", "sshd 5", suppressed, "Suppressed 12 messages from kubelet.service",
		missed, "Missed 34 kernel messages", "kubelet 8",
	}
	for _, tt := range []struct {
		name   string
		filter Filter
		want   []string
	}{
		{"all", Filter{}, all},
		{"NPD's source kernel", Filter{Identifiers: []string{"kernel"}}, []string{"kernel 1", "forged 3", "to kmsg 4", missed}},
		{"a unit", Filter{Units: []string{"kubelet"}}, []string{"kubelet 2", suppressed, "kubelet 8"}},
		{"two units", Filter{Units: []string{"kubelet.service", "ssh.service"}}, []string{"kubelet 2", "sshd 5", suppressed, "kubelet 8"}},
		{"a unit and an identifier", Filter{Identifiers: []string{"kernel"}, Units: []string{"x"}}, []string{"forged 3"}},
		{"journald itself", Filter{Identifiers: []string{"systemd-journald"}}, []string{suppressed, all[6], all[8]}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := start(t, Config{Directory: j.dir, Filter: tt.filter})
			c.want(tt.want...)
			c.stop()
			for _, l := range c.lines {
				want := l.Origin
				switch string(l.Text) {
				case "kernel 1":
					want = event.OriginKernel
				case "forged 3", "to kmsg 4":
					want = Unverified + event.OriginKernel
				}
				if l.Origin != want {
					t.Errorf("%q is of %q, want %q", l.Text, l.Origin, want)
				}
			}
		})
	}
}

// Only the kernel has its origins, whatever name others choose, and each of its records is one
// line.
func TestOriginsOfTheKernel(t *testing.T) {
	j := newJournal(t)
	j.write("a.journal",
		j.entry("1", "SYSLOG_IDENTIFIER", "kernel", "_TRANSPORT", "kernel", "SYSLOG_FACILITY", "0"),
		j.entry("2", "_COMM", "kernel", "_TRANSPORT", "journal"),
		j.entry("3", "_COMM", "process", "_TRANSPORT", "journal"),
		j.entry("4", "SYSLOG_IDENTIFIER", "process", "_TRANSPORT", "kernel", "SYSLOG_FACILITY", "1"),
		j.entry("5\nmd: md0 stopped.\n", "SYSLOG_IDENTIFIER", "kernel", "_TRANSPORT", "kernel", "SYSLOG_FACILITY", "0"),
		j.entry("6\nother", "SYSLOG_IDENTIFIER", "app", "_TRANSPORT", "stdout"),
	)
	c := start(t, Config{Directory: j.dir})
	c.want("1", "2", "3", "4", `5\x0amd: md0 stopped.\x0a`, "6\nother")
	c.stop()
	for i, want := range []string{"kernel", "unverified:kernel", "unverified:process", "unverified:process", "kernel", "app"} {
		if got := c.lines[i].Origin; got != want {
			t.Errorf("%s is of %s, want %s", c.lines[i].Text, got, want)
		}
	}
}

// An item that handle refused is handed over again.
func TestHandleFails(t *testing.T) {
	j := newJournal(t)
	j.write("a.journal", j.entry("1"), j.entry("2"), j.entry("3"))
	r, err := New(Config{Directory: j.dir, Lookback: 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	full := fmt.Errorf("full")
	if err := r.Run(t.Context(), func(item logs.Item) error {
		if string(item.Line.Text) == "2" {
			return full
		}
		return nil
	}); err != full { //nolint:errorlint // it has to be the very error
		t.Errorf("Run = %v", err)
	}
	start(t, Config{Directory: j.dir, Position: r.Position()}).want("2", "3")
}

// Lines of this boot have a time since boot.
func TestBootTime(t *testing.T) {
	j := newJournal(t)
	boot := strings.ReplaceAll(hostfs.BootID(), "-", "")
	if len(boot) != 32 {
		t.Fatalf("boot id %q", boot)
	}
	j.write("a.journal", j.entry("1", "_BOOT_ID", boot))
	c := start(t, Config{Directory: j.dir})
	c.want("1")
	c.stop()
	if got := c.lines[0].BootTime; got < time.Second || got > time.Second+suspended()+time.Millisecond {
		t.Errorf("boot time %v", got)
	}
}
