package clustertest_test

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/vmtest/agenttest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// For a real kill in a pod, why gives the same answer from the API server only, from the journal only,
// and from both.
func TestWhyInACluster(t *testing.T) {
	testenv.OnlyInTestAll(t)
	server := cluster.Server(t)
	a := newAgent(t, server)
	a.shipped("oom-kill")
	pod := server.Pod(t, server.Namespace(t), "web-1", a.node)
	uid := string(pod.UID)
	a.Start()
	a.WaitSources(0)
	a.knows("oom-kill")
	name := pod.Namespace + "/" + pod.Name
	kubeconfig := server.Kubeconfig(t, server.Admin())
	ask := func(ctx context.Context, args ...string) (int, string) {
		cmd := exec.CommandContext(ctx, a.path, append([]string{"why"}, args...)...)
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode(), string(out)
	}
	agentAt := "--agent-namespace=" + a.namespace
	if code, out := ask(t.Context(), "pod", name, "--kubeconfig", kubeconfig, agentAt); code != 1 && code != 3 || !strings.Contains(out, "none known") {
		t.Errorf("exit code %d\n%s", code, out)
	}

	agenttest.KillIn(t, agenttest.PodGroup(t, uid, 24<<20))
	var last string
	a.await("answer from the API", time.Minute, func(ctx context.Context) (bool, string, error) {
		code, out := ask(ctx, "pod", name, "--kubeconfig", kubeconfig, agentAt)
		last = out
		return code == 0 && strings.Contains(out, "diagnosis "+a.namespace+"/oom-kill-"), out, nil
	})
	t.Log("\n" + last)
	want := []string{"killed at its limit of 24 MiB", "24 MiB used of the 24 MiB limit", "node out of memory (a cgroup's limit was hit)", "docs/problems/OOMKilling"}
	both := "pod " + name
	for what, c := range map[string]struct {
		args []string
		more string
	}{
		"API":     {[]string{"pod", name, "--kubeconfig", kubeconfig, agentAt}, both},
		"journal": {[]string{"pod", uid, "--journal", a.State}, "pod " + uid},
		"both":    {[]string{"pod", "-n", pod.Namespace, "web-1", "--kubeconfig", kubeconfig, agentAt, "--journal", filepath.Join(a.State, "journal")}, both},
		"node":    {[]string{"node", a.node, "--kubeconfig", kubeconfig, agentAt, "--journal", a.State}, both},
	} {
		code, out := ask(t.Context(), c.args...)
		for _, w := range append(want, c.more) {
			if !strings.Contains(out, w) {
				t.Errorf("%s: no %q in\n%s", what, w, out)
			}
		}
		if n := strings.Count(out, "24 MiB used of the 24 MiB limit"); code != 0 || n != 1 {
			t.Errorf("%s: exit code %d, reported %d times\n%s", what, code, n, out)
		}
	}
	a.Stop()
}
