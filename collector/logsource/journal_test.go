package logsource

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/hostfs"
)

// journalDir is a folder of journal files that systemd itself writes.
type journalDir struct {
	t    *testing.T
	dir  string
	tool string
	boot string
	n    int
}

func newJournalDir(t *testing.T) *journalDir {
	t.Helper()
	if _, err := exec.LookPath("journalctl"); err != nil {
		t.Skip("journalctl is not there: a machine without systemd")
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range []string{"/lib/systemd/systemd-journal-remote", "/usr/lib/systemd/systemd-journal-remote"} {
		if _, err := os.Stat(tool); err == nil {
			return &journalDir{t: t, dir: t.TempDir(), tool: tool, boot: strings.ReplaceAll(strings.TrimSpace(string(boot)), "-", "")}
		}
	}
	t.Skip("nothing writes journal files here (package systemd-journal-remote)")
	return nil
}

// write adds an entry of a unit, logged the given time ago.
func (j *journalDir) write(unit, message string, ago time.Duration) {
	j.t.Helper()
	j.n++
	at, mono, boot := time.Now().Add(-ago), hostfs.BootTime()-ago, j.boot
	if mono < 0 {
		mono, boot = time.Hour+time.Duration(j.n), strings.Repeat("b", 32)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "__CURSOR=s=%s;i=%x;b=%s;m=%x;t=%x;x=%x\n", strings.Repeat("a", 32), j.n, boot, mono.Microseconds(), at.UnixMicro(), j.n)
	fmt.Fprintf(&b, "__REALTIME_TIMESTAMP=%d\n__MONOTONIC_TIMESTAMP=%d\n_BOOT_ID=%s\n", at.UnixMicro(), mono.Microseconds(), boot)
	fmt.Fprintf(&b, "_MACHINE_ID=%s\n_HOSTNAME=node\nSYSLOG_IDENTIFIER=%s\n_SYSTEMD_UNIT=%s.service\nMESSAGE=%s\n\n", strings.Repeat("c", 32), unit, unit, message)
	cmd := exec.CommandContext(j.t.Context(), j.tool, "--output="+filepath.Join(j.dir, "system.journal"), "-")
	cmd.Stdin = &b
	if out, err := cmd.CombinedOutput(); err != nil {
		j.t.Fatalf("systemd-journal-remote: %v\n%s", err, out)
	}
}

// Lines of different units of a real journal are matched separately; a line of an earlier boot is
// not reported, and a restart reports none again.
func TestJournal(t *testing.T) {
	j := newJournalDir(t)
	j.write("kubelet", "oops of an earlier boot", 100_000*time.Hour)
	j.write("kubelet", "begin", 3*time.Minute)
	j.write("other", "oops of another identifier", 2*time.Minute)
	j.write("docker", "begin", time.Minute)
	set := patterns(t, "oops", `begin\nend`)
	state := t.TempDir()
	c := Config{Name: "units", Plugin: Journald, Path: j.dir, Lookback: time.Hour, Identifiers: []string{"kubelet", "docker"}}
	rec := newRecorder()
	r := run(t, open(t, set, Options{StateDir: state}, c), rec)
	rec.until(t, "start", rec.has("+log/units"))
	j.write("docker", "oops 1", 0)
	rec.until(t, "line", rec.has("oops 1"))
	r.stop()
	j.write("kubelet", "end", 0)
	j.write("docker", "end", 0)
	j.write("docker", "oops 2", 0)
	r = run(t, open(t, set, Options{StateDir: state}, c), rec)
	rec.until(t, "line", rec.has("oops 2"))
	r.stop()
	// docker's begin and end are not adjacent: it logged something in between.
	equal(t, rec.lines(), []string{"oops 1", "begin\nend", "oops 2"})
	for _, ev := range rec.all() {
		if ev.Log != nil && (ev.Log.Seq == 0 || ev.Log.Unit == "" || ev.Log.Origin == "" || ev.BootTime == 0) {
			t.Errorf("event %+v of line %+v", ev, ev.Log)
		}
	}
}
