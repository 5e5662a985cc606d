package degradedtest_test

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/vmtest/testenv"
)

// known are all capabilities.
func known() []string {
	return strings.Fields(`CAP_CHOWN CAP_DAC_OVERRIDE CAP_DAC_READ_SEARCH CAP_FOWNER CAP_FSETID CAP_KILL CAP_SETGID CAP_SETUID CAP_SETPCAP
		CAP_LINUX_IMMUTABLE CAP_NET_BIND_SERVICE CAP_NET_BROADCAST CAP_NET_ADMIN CAP_NET_RAW CAP_IPC_LOCK CAP_IPC_OWNER CAP_SYS_MODULE CAP_SYS_RAWIO
		CAP_SYS_CHROOT CAP_SYS_PTRACE CAP_SYS_PACCT CAP_SYS_ADMIN CAP_SYS_BOOT CAP_SYS_NICE CAP_SYS_RESOURCE CAP_SYS_TIME CAP_SYS_TTY_CONFIG CAP_MKNOD
		CAP_LEASE CAP_AUDIT_WRITE CAP_AUDIT_CONTROL CAP_SETFCAP CAP_MAC_OVERRIDE CAP_MAC_ADMIN CAP_SYSLOG CAP_WAKE_ALARM CAP_BLOCK_SUSPEND CAP_AUDIT_READ
		CAP_PERFMON CAP_BPF CAP_CHECKPOINT_RESTORE`)
}

func allBut(keep ...string) []string {
	return slices.DeleteFunc(known(), func(c string) bool { return slices.Contains(keep, c) })
}

// rows returns the table of a section of docs/capabilities.md: the cells of each line.
func rows(t testing.TB, section string) (out [][]string) {
	t.Helper()
	text, err := os.ReadFile("../../../docs/capabilities.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "\n## "+section+"\n")
	if !ok {
		t.Fatalf("docs/capabilities.md has no section %s", section)
	}
	rest, _, _ = strings.Cut(rest, "\n## ")
	for line := range strings.Lines(rest) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "| `CAP_") {
			continue
		}
		var cells []string
		for c := range strings.SplitSeq(strings.Trim(line, "|"), "|") {
			cells = append(cells, strings.TrimSpace(c))
		}
		out = append(out, cells)
	}
	if len(out) == 0 {
		t.Fatalf("docs/capabilities.md: %s has no table", section)
	}
	return out
}

// hardened returns the capabilities of the hardened list.
func hardened(t testing.TB) (out []string) {
	t.Helper()
	for _, r := range rows(t, "Hardened") {
		out = append(out, strings.Trim(r[0], "`"))
	}
	return out
}

// found is the result of "kernosis features".
type found struct {
	Programs []struct{ Stem, Hook, State string }
	Lacks    []struct{ Part, Reason, Lacks string }
}

// parts returns what is lacking: parts, and hooks without an attached program, "hook:stem/hook".
func (f *found) parts() (out []string) {
	for _, l := range f.Lacks {
		out = append(out, l.Part)
	}
	served := map[string]bool{}
	for _, p := range f.Programs {
		served[p.Stem+"/"+p.Hook] = served[p.Stem+"/"+p.Hook] || p.State == "attached" || p.State == "adopted"
	}
	for hook, is := range served {
		stem, _, _ := strings.Cut(hook, "/")
		if !is && !f.blind(stem) {
			out = append(out, "hook:"+hook)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// blind reports whether a stem has no attached program, so that its hooks need not be listed.
func (f *found) blind(stem string) bool {
	for _, p := range f.Programs {
		if p.Stem == stem && (p.State == "attached" || p.State == "adopted") {
			return false
		}
	}
	return true
}

func features(t testing.TB, l lacking) *found {
	t.Helper()
	cmd := l.command(t, "features", "-o", "json")
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	f := &found{}
	if err := json.Unmarshal(out.Bytes(), f); err != nil {
		t.Fatalf("%v in %s", err, out.String())
	}
	return f
}

// Dropping a capability of the table must cause exactly the degradation in the table. Each is
// dropped alone, together with CAP_SYS_ADMIN, which implies some of them. All capabilities that
// are not in the table are dropped at once.
func TestEachCapability(t *testing.T) {
	testenv.OnlyInTestAll(t)
	lost := func(with []string, l lacking) []string {
		return slices.DeleteFunc(features(t, l).parts(), func(p string) bool { return slices.Contains(with, p) })
	}
	all := features(t, lacking{}).parts()
	base := features(t, lacking{Caps: []string{"CAP_SYS_ADMIN"}}).parts()
	var inTable []string
	for _, r := range rows(t, "What each is for") {
		name := strings.Trim(r[0], "`")
		inTable = append(inTable, name)
		want := strings.FieldsFunc(r[1], func(c rune) bool { return strings.ContainsRune("`, –", c) })
		slices.Sort(want)
		got := lost(base, lacking{Caps: []string{"CAP_SYS_ADMIN", name}})
		if name == "CAP_SYS_ADMIN" {
			got = lost(all, lacking{Caps: []string{name}})
		}
		t.Logf("%s: %q", name, got)
		if !slices.Equal(got, want) {
			t.Errorf("without %s these are lacking: %q; the table has %q", name, got, want)
		}
	}
	if got := lost(all, lacking{Caps: allBut(inTable...)}); len(got) > 0 {
		t.Errorf("capabilities that the table does not have are needed for %q", got)
	}
}
