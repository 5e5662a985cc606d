package degradedtest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/selfcheck"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// capSet returns a capability set of a status file: "CapEff", "CapBnd".
func capSet(t testing.TB, path, name string) hostfs.Caps {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), name+":")
	line, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.ParseUint(strings.TrimSpace(line), 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return hostfs.Caps(n)
}

// lost checks that each thread of the agent has, in a set, what this process has except for some.
func (a *agent) lost(set string, want ...string) {
	a.Helper()
	own := capSet(a.T, "/proc/self/status", "CapEff")
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", a.pid))
	if err != nil || len(tasks) == 0 {
		a.Fatalf("%d threads, %v", len(tasks), err)
	}
	for _, path := range tasks {
		have := capSet(a.T, path, set)
		for _, name := range known() {
			has, had, drops := len(have.Missing(name)) == 0, len(own.Missing(name)) == 0, slices.Contains(want, name)
			if has != (had && !drops) {
				a.Errorf("%s: %s has %s: %t", path, set, name, has)
			}
		}
	}
}

// unneeded returns the capabilities that no setting needs, and others.
func unneeded(others ...string) []string {
	return append(selfcheck.Unneeded(selfcheck.Uses{Diagnose: true, Scripts: true, Programs: true, Journal: true}), others...)
}

// checkProgram writes a configuration with a check program that copies the file with its
// capabilities, and returns the paths of the configuration and of that copy.
func checkProgram(t *testing.T) (config, status string) {
	t.Helper()
	dir := t.TempDir()
	script := filepath.Join(dir, "check.sh")
	config, status = filepath.Join(dir, "check.json"), filepath.Join(dir, "status")
	testenv.WriteProgram(t, script, "#!/bin/sh\ncp /proc/self/status "+status+".new && mv "+status+".new "+status+"\n")
	err := os.WriteFile(config, []byte(`{"plugin": "custom", "pluginConfig": {"invoke_interval": "1s", "timeout": "1s"}, "source": "t", "metricsReporting": false,
			"conditions": [], "rules": [{"type": "temporary", "reason": "Seen", "path": "`+script+`", "timeout": "1s"}]}`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	return config, status
}

// An agent drops what its settings don't need, and lacks nothing.
func TestUnneededRightsAreDropped(t *testing.T) {
	testenv.OnlyInTestAll(t)
	for name, c := range map[string]struct {
		args []string
		lost []string // besides those that no setting needs
	}{
		"default":    {nil, []string{"CAP_SETUID", "CAP_SETGID", "CAP_KILL", "CAP_SYS_CHROOT"}},
		"no causes":  {[]string{"--diagnose=false", "--diagnose-scripts"}, []string{"CAP_NET_RAW", "CAP_SETUID", "CAP_SETGID", "CAP_KILL", "CAP_SYS_CHROOT"}},
		"scripts":    {[]string{"--diagnose-scripts"}, []string{"CAP_SYS_CHROOT"}},
		"a journal":  {[]string{"--log", "journald", "--host-root", "/proc/self/root"}, []string{"CAP_SETUID", "CAP_SETGID", "CAP_KILL"}},
		"it is here": {[]string{"--log", "journald"}, []string{"CAP_SETUID", "CAP_SETGID", "CAP_KILL", "CAP_SYS_CHROOT"}},
	} {
		t.Run(name, func(t *testing.T) {
			a := start(t, lacking{}, "", c.args...)
			for _, set := range []string{"CapEff", "CapPrm", "CapBnd"} {
				a.lost(set, unneeded(c.lost...)...)
			}
			testenv.Until(a, "first self-check", time.Minute, func() bool {
				_, body := a.get("/metrics")
				return strings.Contains(body, `status="Unknown",type="KernosisDegraded"} 0`)
			})
			if _, body := a.get("/readyz"); strings.Contains(body, "MissingRights") {
				t.Error(body)
			}
		})
	}
}

// Check programs may need any capability.
func TestProgramsKeepTheirRights(t *testing.T) {
	testenv.OnlyInTestAll(t)
	for name, l := range map[string]lacking{"usual": {}, "no_new_privs": {NoNewPrivs: true}} {
		t.Run(name, func(t *testing.T) {
			config, status := checkProgram(t)
			a := start(t, l, "", "--config.custom-plugin-monitor", config)
			testenv.UntilShown(a, "run of the check", time.Minute, func() (bool, string) {
				_, err := os.Stat(status)
				return err == nil, fmt.Sprint(err)
			})
			if l.NoNewPrivs {
				a.lost("CapEff") // the check could not get it back
			} else {
				a.lost("CapEff", unneeded("CAP_SETUID", "CAP_SETGID", "CAP_SYS_CHROOT")...)
			}
			a.lost("CapBnd")
			own := capSet(t, "/proc/self/status", "CapEff")
			if got := capSet(t, status, "CapEff"); got != own {
				t.Errorf("the check has %x of %x", got, own)
			}
		})
	}
}

// Without CAP_SETPCAP, as in the hardened profile, the agent can drop what it has itself.
func TestUnneededRightsAreDroppedWithoutSetpcap(t *testing.T) {
	testenv.OnlyInTestAll(t)
	others := allBut(append(hardened(t), "CAP_NET_RAW")...)
	a := start(t, lacking{Caps: others, NoNewPrivs: true}, "", "--diagnose=false")
	a.lost("CapEff", append(others, "CAP_NET_RAW")...)
	a.lost("CapPrm", append(others, "CAP_NET_RAW")...)
}

func TestAllRightsAreKeptWhenAsked(t *testing.T) {
	testenv.OnlyInTestAll(t)
	a := start(t, lacking{}, "", "--drop-capabilities=false")
	a.lost("CapEff")
	a.lost("CapBnd")
}
