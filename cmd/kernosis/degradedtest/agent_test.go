package degradedtest_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kernosis/kernosis/vmtest/testenv"
)

// stems returns the stems of kernel programs.
func stems() []string {
	return []string{"oomkill", "hungtask", "sockfail", "diskio", "fserror", "hwerror"}
}

func TestNothingIsLacking(t *testing.T) {
	testenv.OnlyInTestAll(t)
	a := start(t, lacking{}, "")
	a.condition("KernosisDegraded", corev1.ConditionFalse, "KernosisIsComplete")
	code, body := a.get("/readyz")
	if _, metrics := a.get("/metrics"); code != http.StatusOK || body != "ok\n" || strings.Contains(metrics, "kernosis_degraded{") {
		t.Errorf("readyz: %d %s", code, body)
	}
	a.healthy()
}

// Without the right to load programs, the other parts work: the kernel's log, the API server.
func TestWithoutPrograms(t *testing.T) {
	testenv.OnlyInTestAll(t)
	a := start(t, lacking{Caps: []string{"CAP_BPF", "CAP_PERFMON", "CAP_SYS_ADMIN"}}, "")
	for _, part := range stems() {
		a.degraded(part, "MissingRights", "CAP_BPF, CAP_PERFMON")
	}
	message := a.condition("KernosisDegraded", corev1.ConditionTrue, "MissingRights")
	for _, want := range []string{"not visible without CAP_BPF, CAP_PERFMON: OOM kills, hung tasks, failed connections, disk I/O errors, filesystem errors, hardware errors", "without CAP_SYS_ADMIN: full accept queues"} {
		if !strings.Contains(message, want) {
			t.Errorf("message %q has not %q", message, want)
		}
	}
	testenv.UntilShown(a, "reader of the kernel's log", time.Minute, func() (bool, string) {
		_, body := a.get("/metrics")
		return strings.Contains(body, `stem="log/kmsg"} 1`), "metrics without it"
	})
	// The log reports failed I/O while the program can't. Until it is read, the condition is Unknown.
	a.condition("DiskUnhealthy", corev1.ConditionFalse, "DiskIsHealthy")
	a.condition("ReadonlyFilesystem", corev1.ConditionFalse, "FilesystemIsNotReadOnly")
	// Its lines on real faults take the programs' place, each fault as one problem.
	for fault, reason := range map[string]string{"oom": "OOMKilling", "disk-error": "DiskIOError"} {
		a.inject(fault)
		counter := func() string {
			_, body := a.get("/metrics")
			_, rest, _ := strings.Cut(body, `problem_counter{reason="`+reason+`"} `)
			count, _, _ := strings.Cut(rest, "\n")
			return count
		}
		testenv.UntilShown(a, "one "+reason, time.Minute, func() (bool, string) { return counter() == "1", counter() })
	}
	a.healthy()
}

// inject provokes a real fault.
func (a *agent) inject(fault string) {
	a.Helper()
	cmd := (&lacking{}).command(a, "inject", fault, "--count", "1", "--state-dir", a.TempDir(), "--targets-dir", a.targets, "--pin-root", a.pins)
	if out, err := cmd.CombinedOutput(); err != nil {
		a.Fatalf("inject %s: %v\n%s", fault, err, out)
	}
}

// With the hardened list of docs/capabilities.md, the agent only lacks what that page says.
func TestHardened(t *testing.T) {
	testenv.OnlyInTestAll(t)
	a := start(t, lacking{Caps: allBut(hardened(t)...)}, "")
	a.condition("DiskUnhealthy", corev1.ConditionFalse, "")
	message := a.condition("KernosisDegraded", corev1.ConditionTrue, "MissingRights")
	if message != hardenedLacks {
		t.Errorf("message %q, want %q", message, hardenedLacks)
	}
	if text, err := os.ReadFile("../../../docs/capabilities.md"); err != nil || !strings.Contains(string(text), hardenedLacks) {
		t.Errorf("docs/capabilities.md has not the message (%v)", err)
	}
	// Real faults are detected: a kill at a memory limit, a refused connection.
	for _, fault := range []string{"oom", "probe-refused"} {
		a.inject(fault)
	}
	for _, kind := range []string{"oomkill", "sockfail"} {
		testenv.UntilShown(a, "event of "+kind, time.Minute, func() (bool, string) {
			_, body := a.get("/metrics")
			_, rest, _ := strings.Cut(body, `kernosis_events_total{kind="`+kind+`",node="`+a.node+`"} `)
			count, _, _ := strings.Cut(rest, "\n")
			return count != "" && count != "0", count
		})
	}
	a.healthy()
}

// hardenedLacks is the message on what the agent lacks with the hardened list.
const hardenedLacks = "not visible without CAP_SYS_ADMIN: full accept queues and listeners of pods (reported as unanswered), kernel stacks of blocked tasks in diagnoses; without CAP_NET_RAW: packets in diagnoses"

func TestWithoutPaths(t *testing.T) {
	testenv.OnlyInTestAll(t)
	notBPF := filepath.Join(t.TempDir(), "kernosis")
	a := start(t, lacking{NoKmsg: true, ReadOnly: []string{"STATE"}}, "", "--pin-root", notBPF)
	a.degraded("log/kmsg", "MissingHostPath", "/dev/kmsg")
	a.degraded("pins", "MissingHostPath", filepath.Dir(notBPF)+" (a BPF filesystem)")
	a.degraded("state", "MissingHostPath", a.state+" (writable)")
	message := a.condition("KernosisDegraded", corev1.ConditionTrue, "MissingHostPath")
	if !strings.Contains(message, "without /dev/kmsg: the kernel's log") {
		t.Errorf("message %q", message)
	}
	// It looks at the kernel's log as well.
	a.condition("DiskUnhealthy", corev1.ConditionUnknown, "SourceUnavailable")
	testenv.UntilShown(a, "OOM kills", time.Minute, func() (bool, string) {
		_, body := a.get("/metrics")
		return strings.Contains(body, `stem="oomkill"} 1`), "metrics without them"
	})
	a.healthy()
}

func TestWithoutReportSocket(t *testing.T) {
	testenv.OnlyInTestAll(t)
	dir := t.TempDir()
	a := start(t, lacking{ReadOnly: []string{dir}}, "reports: [{name: gpu, heartbeat: 10s, conditions: [{type: GPUUnhealthy, healthyReason: GPUIsHealthy, healthyMessage: all are}]}]\n",
		"--report-socket", filepath.Join(dir, "report.sock"))
	a.degraded("reports", "MissingHostPath", dir+" (writable)")
	a.condition("KernosisDegraded", corev1.ConditionTrue, "MissingHostPath")
	a.condition("GPUUnhealthy", corev1.ConditionUnknown, "SourceUnavailable")
	a.healthy()
}

// A pod without hostPID.
func TestInAPIDNamespaceOfItsOwn(t *testing.T) {
	testenv.OnlyInTestAll(t)
	a := start(t, lacking{OwnPIDs: true}, "")
	a.degraded("processes", "MissingHostPath", "the node's PID namespace (hostPID)")
	a.condition("KernosisDegraded", corev1.ConditionTrue, "MissingHostPath")
	a.healthy()
}

// Standalone it says the same.
func TestRunSaysIt(t *testing.T) {
	testenv.OnlyInTestAll(t)
	dir := t.TempDir()
	l := lacking{Caps: []string{"CAP_SYSLOG"}}
	cmd := l.command(t, "run", "--state-dir", filepath.Join(dir, "state"), "--pin-root", "", "--listen", "", "--targets-dir", dir)
	out, err := os.Create(filepath.Join(dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	a := &agent{T: t}
	testenv.UntilShown(a, "lines of what it lacks", time.Minute, func() (bool, string) {
		text, err := os.ReadFile(out.Name())
		if err != nil {
			return false, err.Error()
		}
		s := string(text)
		return strings.Contains(s, "msg=degraded part=log/kmsg reason=MissingRights lacks=CAP_SYSLOG") &&
			strings.Contains(s, "KernosisDegraded") && strings.Contains(s, "not visible without CAP_SYSLOG"), s
	})
}
