package chart_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// The example of a sidecar: with the settings and arguments of the rendered pod, the agent reports
// the example daemon's condition.
func TestAProblemDaemonBesideTheAgent(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: the example's daemon reports as root")
	}
	all := rendered(t, profiles(t)["problem-daemon"])
	pod := podsOf(t, all)["kernosis-agent"]
	daemon := pod.Spec.Containers[1]
	for _, m := range pod.Spec.Containers[0].VolumeMounts {
		if m.Name == "run" && m.MountPath != "/run/kernosis" {
			t.Errorf("the socket is in %s", m.MountPath)
		}
	}
	shared := false
	for _, m := range daemon.VolumeMounts {
		shared = shared || m.Name == "run" && m.MountPath == "/run/kernosis"
	}
	if !shared {
		t.Error("the daemon does not have the agent's socket")
	}

	dir := t.TempDir()
	data, _, _ := unstructured.NestedStringMap(object(all, "ConfigMap", "kernosis-agent").Object, "data")
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, []byte(data["config.yaml"]), 0o600); err != nil {
		t.Fatal(err)
	}
	port := kubetest.FreePort(t)
	run := filepath.Join(dir, "run")
	// Nothing from this machine and no BPF programs: only the socket is tested.
	start(t, kernosis(t, "agent", "--config="+config, "--report-socket="+run+"/report.sock", "--state-dir="+dir+"/state", "--pin-root=", "--log=none",
		"--enable-k8s-exporter=false", "--diagnose=false", "--port="+strconv.Itoa(port), "--prometheus-port=0"))
	program := testenv.BuildProgram(t, "github.com/kernosis/kernosis/collector/ingest/client/example_daemon")
	var args []string
	for _, a := range daemon.Args {
		args = append(args, strings.NewReplacer("/run/kernosis", run, "/scratch", dir).Replace(a))
	}
	start(t, exec.CommandContext(t.Context(), program, args...))

	testenv.UntilShown(t, "the condition of the daemon", time.Minute, func() (bool, string) {
		got := conditionAt(t.Context(), port, "ScratchFull")
		return got == "True" || got == "False", strconv.Quote(got)
	})
}

// start runs a program until the test ends.
func start(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s:\n%s", cmd, &out)
		}
	})
}

// conditionAt returns the agent's report of a condition, or "" before it reports it.
func conditionAt(ctx context.Context, port int, of string) string {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:"+strconv.Itoa(port)+"/conditions", nil)
	if err != nil {
		return err.Error()
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	var list []struct{ Type, Status string }
	if json.NewDecoder(answer.Body).Decode(&list) != nil {
		return ""
	}
	for _, c := range list {
		if c.Type == of {
			return c.Status
		}
	}
	return ""
}
