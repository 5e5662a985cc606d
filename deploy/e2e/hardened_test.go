package e2e_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// hardenedTable is the table of the two profiles in docs/install.md; the test checks the same
// facts.
func hardenedTable() []string {
	p, h := privileged(), withoutPrivileges()
	return []string{
		"| probe refused | `ProbeTargetRefused`, with what the container listens on | `ProbeTargetRefused` |",
		fmt.Sprintf("| full accept queue | `%s`, Diagnosis `%s` | `%s` |", p.queueFull, p.queueWhy, h.queueFull),
		"| probe without an answer, slow, or with a bad status | yes | yes |",
		"| repeated OOM kills, with cause | yes | yes |",
		"| hung task, with lock holder | yes | yes |",
		fmt.Sprintf("| failing disk | yes, Diagnosis `%s` | yes, Diagnosis without verdict |", p.diskWhy),
		"| filesystem refuses writes | yes | yes |",
		"| kernel log and its rules | yes | no |",
		"| no fault: conditions with log rules (`KernelDeadlock`) | False | Unknown |",
		"| condition `KernosisDegraded` | False | True, `MissingRights` |",
	}
}

// withoutPrivileges returns how the hardened profile reports faults: it can't inspect listeners of
// pods.
func withoutPrivileges() profile {
	return profile{
		queueFull: "ProbeTargetTimeout", queueSays: "SYN unanswered",
		over: []corev1.ConditionStatus{corev1.ConditionUnknown, corev1.ConditionFalse},
	}
}

// hardened uses capabilities instead of a privileged container. The agent reports what is missing,
// and detects the rest as before.
func (c *cluster) hardened(t *testing.T) {
	page, err := os.ReadFile(root("docs", "install.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range hardenedTable() {
		if !strings.Contains(string(page), row+"\n") {
			t.Errorf("docs/install.md does not have: %s", row)
		}
	}
	// A gauge works only after its first measurement.
	var before map[string]bool
	testenv.UntilShown(t, "all sources of a privileged agent", time.Minute, func() (bool, string) {
		before = c.sources(t)
		return !slices.Contains(slices.Collect(maps.Values(before)), false), fmt.Sprint(before)
	})
	has := capabilities(t)
	list, err := json.Marshal(has)
	if err != nil {
		t.Fatal(err)
	}
	c.install(t, "upgrade", "--set", "agent.profile=hardened", "--set-json", "agent.hardened.capabilities="+string(list))
	c.runs(t)
	c.confined(t, has)
	is := c.condition(t, "KernosisDegraded", corev1.ConditionTrue, time.Minute)
	if is.Reason != "MissingRights" || !strings.Contains(is.Message, "/dev/kmsg") || !strings.Contains(is.Message, "CAP_SYS_ADMIN") {
		t.Errorf("%s: %s", is.Reason, is.Message)
	}
	before["log/kmsg"] = false
	testenv.UntilShown(t, "sources as before, but for the log", time.Minute, func() (bool, string) {
		after := c.sources(t)
		return maps.Equal(before, after), fmt.Sprintf("%v, not %v", after, before)
	})
	c.faultsWith(t, withoutPrivileges())
}

// confined checks that the kernel restricts the agent to its capabilities and system calls.
func (c *cluster) confined(t *testing.T, capabilities []string) {
	is := c.status(t, &c.of(t, "agent")[0], "agent")
	for field, want := range map[string]string{"Seccomp": "2", "NoNewPrivs": "1"} {
		if is[field] != want {
			t.Errorf("%s is %q, want %s", field, is[field], want)
		}
	}
	var want hostfs.Caps
	for _, name := range capabilities {
		n, ok := hostfs.CapNumber("CAP_" + name)
		if !ok {
			t.Fatalf("%s is not a capability", name)
		}
		want |= 1 << n
	}
	for _, set := range []string{"CapEff", "CapPrm", "CapBnd"} {
		if is[set] != fmt.Sprintf("%016x", uint64(want)) {
			t.Errorf("%s is %s, want %016x", set, is[set], uint64(want))
		}
	}
}

// capabilities returns the capabilities of the chart's hardened profile that root has on this
// machine: a container with others would not start.
func capabilities(t testing.TB) []string {
	t.Helper()
	text, err := os.ReadFile(root("deploy", "chart", "kernosis", "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var values struct {
		Agent struct {
			Hardened struct {
				Capabilities []string `json:"capabilities"`
			} `json:"hardened"`
		} `json:"agent"`
	}
	if err := yaml.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, bounding, _ := strings.Cut(string(status), "CapBnd:\t")
	bounding, _, _ = strings.Cut(bounding, "\n")
	has, err := strconv.ParseUint(bounding, 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	all := values.Agent.Hardened.Capabilities
	if has&(1<<unix.CAP_SYS_RESOURCE) == 0 {
		all = slices.DeleteFunc(all, func(name string) bool { return name == "SYS_RESOURCE" })
	}
	if len(all) == 0 {
		t.Fatal("the profile has no capabilities")
	}
	return all
}

// sources returns the agent's sources and whether each works.
func (c *cluster) sources(t testing.TB) (all map[string]bool) {
	t.Helper()
	all = map[string]bool{}
	for _, m := range c.metrics(t)["kernosis_source_up"].GetMetric() {
		for _, l := range m.GetLabel() {
			if l.GetName() == "stem" {
				all[l.GetValue()] = m.GetGauge().GetValue() == 1
			}
		}
	}
	if len(all) == 0 {
		t.Fatal("no metric of sources")
	}
	return all
}
