package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/vmtest/agenttest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// command runs a command of kernosis in this process.
func command(t *testing.T, args ...string) (code int, stdout string) {
	t.Helper()
	var out, errs bytes.Buffer
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&errs)
	code = exitCode(root.ExecuteContext(t.Context()), &errs)
	if errs.Len() > 0 {
		t.Logf("%s: %s", strings.Join(args, " "), errs.String())
	}
	return code, out.String()
}

// TestReplayReportsWhatTheAgentReported replays the journal of a real run with faults (as
// root), a mute, kill -9 and a restart: all transitions are as recorded.
func TestReplayReportsWhatTheAgentReported(t *testing.T) {
	testenv.OnlyInTestAll(t)
	root := os.Geteuid() == 0
	p := newAgent(t)
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Within(2*time.Minute))
	defer cancel()
	if !root {
		p.Args = append(p.Args, "--pin-root", "")
	}
	p.Start()
	kill := func() {}
	if root {
		p.WaitSources(0)
		oom := &inject.OOM{StateDir: t.TempDir()}
		if err := oom.Start(ctx); err != nil {
			t.Fatal(err)
		}
		defer oom.Close()
		n := 0
		kill = func() {
			if _, err := oom.Kill(ctx); err != nil {
				t.Fatal(err)
			}
			n++
			p.Wait("kill", 20*time.Second, func(entries []journal.Entry) bool { return len(kills(entries, oom.Cgroup())) >= n })
		}
	}
	waitMute(t, p, 0, false) // starts
	kill()
	if code, out := command(t, "mute", "oom-kill", "--state-dir", p.State, "--for", "1h", "--reason", "a test"); code != 0 {
		t.Fatalf("mute: %d %s", code, out)
	}
	waitMute(t, p, 1, false)
	kill()
	p.Kill()
	n := len(p.Entries())
	p.Start()
	p.Wait("start", 20*time.Second, func(entries []journal.Entry) bool { return len(entries) > n+2 })
	if root {
		p.WaitSources(n)
	}
	kill()
	if code, out := command(t, "mute", "oom-kill", "--state-dir", p.State, "--end"); code != 0 {
		t.Fatalf("mute --end: %d %s", code, out)
	}
	waitMute(t, p, 1, true)
	kill()
	p.Stop()

	code, out := command(t, "replay", "--compare", "-v", p.State)
	if code != output.ExitOK || strings.Contains(out, "nothing recorded") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	if root && (!strings.Contains(out, " muted    OOMKilling") || !strings.Contains(out, "(x4) [oom-kill]")) {
		t.Errorf("four kills, some of them muted, are not in\n%s", out)
	}
	if code, again := command(t, "replay", "--compare", "-v", p.State); code != output.ExitOK || again != out {
		t.Errorf("twice is not the same")
	}
	// With other rules the reports differ, and the comparison shows that.
	dir := t.TempDir()
	rule := "apiVersion: rules.kernosis.io/v1\nrules:\n- {name: oom-kill, events: [oomkill], when: \"false\", reason: OOMKilling, message: m}\n"
	if err := os.WriteFile(filepath.Join(dir, "r.yaml"), []byte(rule), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out := command(t, "replay", "--compare", "--rules", dir, p.State); root && (code != output.ExitFailed || !strings.Contains(out, `: - {"problem":{"rule":"oom-kill"`)) {
		t.Errorf("by other rules: exit code %d:\n%s", code, out)
	}
}

// waitMute waits until n mutes were reported as begun or as over.
func waitMute(t *testing.T, p *agenttest.Agent, n int, over bool) {
	t.Helper()
	p.WaitIn(t, fmt.Sprintf("mute %d, over: %v", n, over), 20*time.Second, func(entries []journal.Entry) bool {
		reported := 0
		for _, e := range entries {
			for _, tr := range e.Transitions {
				if tr.Mute != nil && tr.Mute.Over == over {
					reported++
				}
			}
		}
		return len(entries) > 0 && reported >= n
	})
}

func TestReplayBadUse(t *testing.T) {
	dump := filepath.Join(t.TempDir(), "dump")
	if err := os.WriteFile(dump, []byte("[    1.000000] text\nno time\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"--format", "kmsg", dump}, {"--format", "journal", dump}, {"--format", "journal-export", dump},
		{}, {"absent"}, {"-o", "xml", dump}, {"--format", "x", dump}, {"--boot", "now", dump}, {"--until", "x", dump},
		{"--until", "-5s", dump}, {"--rules", "absent", dump}, {"--mutes", "absent", dump}, {t.TempDir()}, {"/dev/null"},
		{"--compare", dump}, {"--compare", "--format", "plain", dump},
		{"--boot", "2026-01-02T15:04:05Z", "--format", "plain", dump}, {"--boot", "2026-01-02T15:04:05Z", journalFolder(t)},
	} {
		if code, out := command(t, append([]string{"replay"}, args...)...); code != output.ExitInput || out != "" {
			t.Errorf("%v: exit code %d, %q", args, code, out)
		}
	}
	if code, out := command(t, "replay", "--format", "dmesg", "/dev/null"); code != output.ExitOK || !strings.HasPrefix(out, "0 lines of dmesg") {
		t.Errorf("an empty dump: exit code %d, %q", code, out)
	}
	for _, format := range []string{"", "dmesg"} {
		code, out := command(t, "replay", "--format", format, "--until", "+1h", dump)
		if code != output.ExitOK || !strings.HasSuffix(out, "2 lines of dmesg, [    1.000000] to [ 3601.000000]: 0 events, fired 0 times, resolved 0 times, 1 bad lines\n") {
			t.Errorf("exit code %d: %s", code, out)
		}
	}
}

// journalFolder returns a folder with a journal of one entry.
func journalFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	j, err := journal.Open(dir, journal.Options{MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = j.Add(journal.NewEntry(event.Moment{Wall: time.Unix(1e9, 0), Boot: time.Hour}))
	if err := errors.Join(err, j.Close()); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A full disk or a power failure leaves a segment that is empty or has only a part of a line.
func TestReplayTornSegment(t *testing.T) {
	dir := journalFolder(t)
	_, want := command(t, "replay", dir)
	if !strings.HasPrefix(want, "1 lines of journal, ") {
		t.Fatal(want)
	}
	counted := strings.NewReplacer("1 lines", "2 lines", "0 bad", "1 bad").Replace(want)
	for text, want := range map[string]string{"": want, `{"seq":99,"no`: counted, "\x00\x00\x00\x00": counted} {
		if err := os.WriteFile(filepath.Join(dir, "journal-99999999999999999999.jsonl"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if code, out := command(t, "replay", dir); code != output.ExitOK || out != want {
			t.Errorf("with segment %q: exit code %d: %swant %s", text, code, out, want)
		}
	}
}

// A running agent removes old segments.
func TestReplayRemovedSegment(t *testing.T) {
	dir := journalFolder(t)
	gone := filepath.Join(dir, "journal-00000000000000000000.jsonl")
	if err := os.Symlink("gone", gone); err != nil { // listed, but can't be opened
		t.Fatal(err)
	}
	if code, out := command(t, "replay", dir); code != output.ExitOK || !strings.HasPrefix(out, "1 lines of journal, ") {
		t.Errorf("exit code %d: %s", code, out)
	}
	if code, out := command(t, "replay", gone); code != output.ExitInput || out != "" {
		t.Errorf("the segment itself: exit code %d: %s", code, out)
	}
}

// A folder of segments without a single entry is not a journal.
func TestReplayNoEntries(t *testing.T) {
	for _, text := range []string{"", "no entry\n"} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "journal-1.jsonl"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if code, out := command(t, "replay", dir); code != output.ExitInput || out != "" {
			t.Errorf("%q: exit code %d: %s", text, code, out)
		}
	}
}
