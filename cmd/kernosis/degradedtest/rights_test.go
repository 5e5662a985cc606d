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

	corev1 "k8s.io/api/core/v1"

	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/selfcheck"
	"github.com/kernosis/kernosis/vmtest/await"
	"github.com/kernosis/kernosis/vmtest/testall"
	"github.com/kernosis/kernosis/vmtest/testprogram"
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

// needless returns the needless capabilities that this process has.
func needless(t testing.TB) []string {
	t.Helper()
	own := capSet(t, "/proc/self/status", "CapEff")
	all := slices.DeleteFunc(selfcheck.Needless(), func(name string) bool { return len(own.Missing(name)) > 0 })
	if len(all) == 0 {
		t.Skip("this root has none of the capabilities that are given up")
	}
	return all
}

// sets checks that each thread of the agent has all needless capabilities in a set, or none.
func (a *agent) sets(name string, none bool) {
	a.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", a.pid))
	if err != nil || len(tasks) == 0 {
		a.Fatalf("%d threads, %v", len(tasks), err)
	}
	for _, path := range tasks {
		have, all := capSet(a.T, path, name), needless(a.T)
		missing := have.Missing(all...)
		if none && len(missing) < len(all) {
			a.Errorf("%s: %s has some of the needless: %x", path, name, have)
		}
		if !none && len(missing) > 0 {
			a.Errorf("%s: %s lacks %q", path, name, missing)
		}
		if lost := have.Missing("CAP_BPF", "CAP_SYS_ADMIN", "CAP_NET_RAW", "CAP_SYS_CHROOT"); len(lost) > 0 {
			a.Errorf("%s: %s lacks %q", path, name, lost)
		}
	}
}

func TestNeedlessRightsAreGivenUp(t *testing.T) {
	testall.Only(t)
	a := start(t, lacking{}, "")
	a.condition("KernosisDegraded", corev1.ConditionFalse, "KernosisIsComplete")
	a.sets("CapEff", true)
	a.sets("CapPrm", true)
	a.sets("CapBnd", true)
}

// Configured programs may need any capability.
func TestProgramsKeepTheirRights(t *testing.T) {
	testall.Only(t)
	for name, l := range map[string]lacking{"usual": {}, "no_new_privs": {NoNewPrivs: true}} {
		t.Run(name, func(t *testing.T) { programsKeepTheirRights(t, l) })
	}
}

func programsKeepTheirRights(t *testing.T, l lacking) {
	dir := t.TempDir()
	seen, script, config := filepath.Join(dir, "seen"), filepath.Join(dir, "check.sh"), filepath.Join(dir, "check.json")
	testprogram.Write(t, script, "#!/bin/sh\ncp /proc/self/status "+seen+".new && mv "+seen+".new "+seen+"\n")
	err := os.WriteFile(config, []byte(`{"plugin": "custom", "pluginConfig": {"invoke_interval": "1s", "timeout": "1s"}, "source": "t", "metricsReporting": false,
			"conditions": [], "rules": [{"type": "temporary", "reason": "Seen", "path": "`+script+`", "timeout": "1s"}]}`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	a := start(t, l, "", "--config.custom-plugin-monitor", config)
	await.UntilShown(a, "run of the check", time.Minute, func() (bool, string) {
		_, err := os.Stat(seen)
		return err == nil, fmt.Sprint(err)
	})
	a.sets("CapEff", !l.NoNewPrivs)
	a.sets("CapBnd", false)
	if lost := capSet(t, seen, "CapEff").Missing(needless(t)...); len(lost) > 0 {
		t.Errorf("the check lacks %q", lost)
	}
}

func TestAllRightsAreKeptWhenAsked(t *testing.T) {
	testall.Only(t)
	a := start(t, lacking{}, "", "--drop-capabilities=false")
	a.sets("CapEff", false)
	a.sets("CapBnd", false)
}
