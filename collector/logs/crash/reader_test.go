package crash

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/logs"
)

// panicLines are the lines of the parts newer and older.
func panicLines() []string {
	return []string{
		"systemd[1]: started", "BUG: kernel NULL pointer dereference, address: 0000000000000020",
		"Oops: 0002 [#2] PREEMPT SMP NOPTI", "RIP: 0010:nfs_commit+0x12/0x80", "Call Trace:",
		"Kernel panic - not syncing: Fatal exception",
	}
}

// A panic in two parts, behind an oops that the kernel survived: it is handed over once, in order.
func TestPanicIsReadOnce(t *testing.T) {
	n := newNode(t)
	if lines := n.look(); lines != nil || !slices.Equal(n.status, []string{"<nil>"}) {
		t.Fatalf("without records: %q, %q", lines, n.status)
	}
	n.write("sys/fs/pstore/dmesg-erst-7401", survived, -3*time.Minute)
	n.write("sys/fs/pstore/dmesg-erst-7402", newer, -2*time.Minute)
	n.write("sys/fs/pstore/dmesg-erst-7403", older, -2*time.Minute+time.Second)
	n.write("sys/fs/pstore/console-ramoops-0", newer, -2*time.Minute)
	if diff := cmp.Diff(panicLines(), n.look()); diff != "" {
		t.Fatalf("(-want +have):\n%s", diff)
	}
	at := booted().Add(-2*time.Minute + time.Second)
	for i, want := range []logs.Line{
		{Seq: 1, Stamp: 500 * time.Second, Priority: "", Origin: ""}, // systemd's, in the kernel's log
		{Seq: 2, Stamp: 512300001 * time.Microsecond, Priority: "alert", Origin: event.OriginKernel},
	} {
		have := n.lines[i]
		if have.Time.Sub(at).Abs() > time.Second {
			t.Errorf("line %d at %v, want %v", i, have.Time, at)
		}
		have.Time, have.Text = time.Time{}, nil
		if diff := cmp.Diff(want, have); diff != "" {
			t.Errorf("line %d (-want +have):\n%s", i, diff)
		}
	}
	for range 2 {
		if lines := n.look(); lines != nil {
			t.Errorf("again after a restart: %q", lines)
		}
	}
	// systemd-pstore copies the files, and kdump has the same panic.
	n.write("var/lib/systemd/pstore/1795/000/dmesg-erst-7402", newer, time.Second)
	n.write("var/lib/systemd/pstore/1795/000/dmesg-erst-7403", older, time.Second)
	n.write("var/lib/systemd/pstore/1795/000/dmesg.txt", older+newer, time.Second)
	n.write("var/crash/202611281605/dmesg.202611281605", whole+"[  512.302000] Kernel panic - not syncing: Fatal exception\n", -time.Minute)
	if lines := n.look(); lines != nil {
		t.Errorf("other copies of the same panic: %q", lines)
	}
	// The next panic has the same heading and words.
	n.write("sys/fs/pstore/dmesg-erst-7404", strings.ReplaceAll(newer, "512.", "600."), time.Minute)
	if lines := n.look(); !slices.Equal(lines, panicLines()[3:]) {
		t.Errorf("of the next panic: %q", lines)
	}
}

// Without a position only what was written at most Lookback before the boot is read, and nothing
// older later on.
func TestOldRecords(t *testing.T) {
	n := newNode(t)
	n.write("var/crash/week/dmesg.1", "[    7.000001] Kernel panic - not syncing: a week ago\n", -7*24*time.Hour)
	n.write("var/crash/night/vmcore-dmesg.txt", "[    7.000002] Kernel panic - not syncing: last night\n", -23*time.Hour)
	for _, want := range [][]string{{"Kernel panic - not syncing: last night"}, nil} {
		if lines := n.look(); !slices.Equal(lines, want) {
			t.Errorf("have %q, want %q", lines, want)
		}
	}
	n.seen = "garbage"
	if n.look(); !slices.Equal(n.losses, []logs.Reason{logs.BadPosition}) {
		t.Errorf("of a bad position: lost %v", n.losses)
	}
}

// A position whose time is after this boot was saved while the clock was ahead.
func TestClockWasAhead(t *testing.T) {
	n := newNode(t)
	n.write("var/crash/week/dmesg.1", "[    7.000001] Kernel panic - not syncing: a week ago\n", -7*24*time.Hour)
	n.write("var/crash/night/dmesg.1", "[    7.000002] Kernel panic - not syncing: last night\n", -23*time.Hour)
	ahead := position{since: booted().Add(30 * 24 * time.Hour), seen: []string{"other"}}
	n.seen = ahead.text()
	for _, want := range [][]string{{"Kernel panic - not syncing: last night"}, nil} {
		if lines := n.look(); !slices.Equal(lines, want) || n.losses != nil {
			t.Errorf("have %q, want %q; lost %v", lines, want, n.losses)
		}
	}
	if pos, ok := parsePosition(n.seen); !ok || len(pos.seen) != 2 || pos.seen[0] != "other" {
		t.Errorf("position %q", n.seen)
	}
}

func TestRecordsThatSayNothing(t *testing.T) {
	n := newNode(t)
	n.write("var/crash/1/dmesg.1", whole, -time.Hour)
	n.write("sys/fs/pstore/dmesg-efi-179500000001001", strings.Replace(older, "Part2", "Part1", 1), -time.Minute)
	lines := n.look()
	want := []string{
		"Linux version 6.12.0", "BUG: kernel NULL pointer dereference, address: 0000000000000020",
		"the kernel crashed without a panic message, recorded in /var/crash/1/dmesg.1",
		"systemd[1]: started", "BUG: kernel NULL pointer dereference, address: 0000000000000020", "Oops: 0002 [#2] PREEMPT SMP NOPTI",
		"the kernel crashed without a panic message, recorded in /sys/fs/pstore/dmesg-efi-179500000001001",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Fatalf("(-want +have):\n%s", diff)
	}
	if l := n.lines[2]; l.Origin != event.CrashLog || l.Seq != 3 || n.lines[3].Seq != 1 {
		t.Errorf("the line that is added: %+v", l)
	}
	n.write("var/lib/systemd/pstore/1795/000/dmesg-efi-179500000001001", strings.Replace(older, "Part2", "Part1", 1), time.Minute)
	if lines := n.look(); lines != nil {
		t.Errorf("again: %q", lines)
	}
}

// Files that can't be read are lost, and reported once; folders that can't be read are a state.
func TestUnreadable(t *testing.T) {
	n := newNode(t)
	n.write("sys/fs/pstore/dmesg-efi-179500000001001.enc.z", "\x78\x9c\x00", -time.Hour)
	n.write("var/crash", "no folder", 0)
	n.write("var/lib/systemd/pstore/dmesg-ramoops-0", newer, -time.Minute)
	if lines := n.look(); len(lines) != 3 || !slices.Equal(n.losses, []logs.Reason{logs.Malformed}) ||
		!slices.Equal(n.status, []string{"list /var/crash: not a directory"}) {
		t.Errorf("%q, lost %v, state %q", lines, n.losses, n.status)
	}
	n.write("var/lib/systemd/pstore/dmesg-efi-179500000001001.enc.z", "\x78\x9c\x00", 0)
	if lines := n.look(); lines != nil || n.losses != nil || len(n.status) != 1 {
		t.Errorf("again: %q, lost %v, state %q", lines, n.losses, n.status)
	}
	if err := Check(hostfs.New(n.root)); err == nil || !strings.HasSuffix(err.Error(), "/var/crash: not a directory") {
		t.Errorf("check: %v", err)
	}
	// A container that has only parts of the host's tree.
	if err := Check(hostfs.New(t.TempDir())); err == nil || !strings.HasSuffix(err.Error(), "/sys/fs: no such file or directory") {
		t.Errorf("check of no host: %v", err)
	}
	if err := Check(hostfs.New(newNode(t).root)); err != nil {
		t.Errorf("check without records: %v", err)
	}
}

// A file that fails to be read hides no other one, and is reported as long as it does.
func TestAFileFails(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount")
	}
	n := newNode(t)
	n.write("var/crash/1/dmesg.1", whole, 0)
	bad := filepath.Join(n.root, "var/crash/1/dmesg.1")
	if err := unix.Mount("/proc/self/mem", bad, "", unix.MS_BIND, ""); err != nil { // no memory at 0: EIO
		t.Fatal(err)
	}
	unmount := sync.OnceFunc(func() {
		if err := unix.Unmount(bad, 0); err != nil {
			t.Error(err)
		}
	})
	defer unmount()
	n.write("sys/fs/pstore/dmesg-ramoops-0", newer, -time.Minute)
	n.write("var/crash/2/dmesg.2", whole, time.Hour)
	var state error
	r := New(Config{Root: n.root, Status: func(err error) { state = err }})
	for look := range 3 {
		if look == 2 {
			unmount()
		}
		if err := r.look(n.take); err != nil {
			t.Fatal(err)
		}
		if len(n.lines) != 6 || errors.Is(state, unix.EIO) != (look < 2) {
			t.Errorf("look %d: %d lines, state %v", look, len(n.lines), state)
		}
	}
}

// What is read is bounded: the end of a file, the newest files.
func TestBounds(t *testing.T) {
	n := newNode(t)
	long := strings.Repeat(fmt.Sprintf("[    1.000000] %s\n", strings.Repeat("x", 1000)), 2*maxSize/1000)
	n.write("var/crash/long/dmesg.1", long+"[    2.000000] Kernel panic - not syncing: long\n", -time.Minute)
	if lines := n.look(); len(lines) < 200 || len(lines) > maxSize/1000 || len(lines[0]) != 1000 || !strings.HasSuffix(lines[len(lines)-1], "long") {
		t.Errorf("%d lines", len(lines))
	}
	for i := range 2 * maxFiles {
		n.write(fmt.Sprintf("var/crash/%d/dmesg.1", i), fmt.Sprintf("[    3.%06d] Kernel panic - not syncing: %d\n", i, i), time.Duration(i)*time.Second)
	}
	if lines := n.look(); len(lines) != maxFiles || lines[0] != fmt.Sprintf("Kernel panic - not syncing: %d", maxFiles) {
		t.Errorf("%d lines from %q", len(lines), lines[0])
	}
	if lines := n.look(); lines != nil {
		t.Errorf("again: %q", lines)
	}
}

// Records of two boots with the same heading are two records, in the order of their times.
func TestSameHeading(t *testing.T) {
	n := newNode(t)
	n.write("sys/fs/pstore/dmesg-ramoops-1", "Panic#1 Part1\n<0>[    9.000001] Kernel panic - not syncing: first\n", -2*time.Second)
	n.write("sys/fs/pstore/dmesg-ramoops-0", "Panic#1 Part1\n<0>[    9.000002] Kernel panic - not syncing: second\n", -time.Second)
	n.write("sys/fs/pstore/dmesg-ramoops-2", "Panic#1 Part2\n<0>[    8.000000] of none of them\n", -time.Hour)
	lines := n.look()
	want := []string{"Kernel panic - not syncing: first", "Kernel panic - not syncing: second"}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("(-want +have):\n%s", diff)
	}
}

func TestLines(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"<0>[   12.345678] Kernel panic - not syncing: x", "12.345678s emerg kernel|Kernel panic - not syncing: x"},
		{"<6>[   12.345678][   T17] a  b", "12.345678s info kernel|a  b"},
		{"[   12.345678][ C1] a", "12.345678s  kernel|a"},
		{"<4>no stamp", "0s warning kernel|no stamp"},
		{"no prefix\x01", `0s  kernel|no prefix\x01`},
		{"<12>[    1.000000] Kernel panic - not syncing: written by a process", "1s  |Kernel panic - not syncing: written by a process"},
		{"<6>[    1.000000] a[1]: segfault at 0 ip\n<6>[    1.000000] Kernel panic - not syncing: its file's name",
			"1s info process|Kernel panic - not syncing: its file's name"},
	} {
		r := record{parts: []part{{text: []byte(tt.text)}}}
		lines, id := r.lines()
		l := lines[len(lines)-1]
		if have := fmt.Sprintf("%s %s %s|%s", l.Stamp, l.Priority, l.Author(), l.Text); have != tt.want {
			t.Errorf("%q: %s, want %s", tt.text, have, tt.want)
		}
		if genuine := strings.HasPrefix(string(l.Text), panicked) && l.Author() == event.OriginKernel; (id != "") != genuine {
			t.Errorf("%q: is identified by %q", tt.text, id)
		}
	}
}

// What handle refuses is handed over again.
func TestRefused(t *testing.T) {
	n := newNode(t)
	n.write("sys/fs/pstore/dmesg-erst-1", newer, -time.Minute)
	r := New(Config{Root: n.root, Lookback: time.Hour})
	refused := errors.New("refused")
	if err := r.Run(t.Context(), func(logs.Item) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("ended with %v", err)
	}
	n.seen = r.Position()
	if lines := n.look(); len(lines) != 3 {
		t.Errorf("after a refusal: %q", lines)
	}
}
