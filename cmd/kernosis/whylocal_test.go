package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kernosis/kernosis/cmd/kernosis/agent"
	"github.com/kernosis/kernosis/diagnose/why"
	"github.com/kernosis/kernosis/diagnose/worker"
)

// The agent's Diagnoses have the UIDs of their object and pod, also those without a parameter podUID.
func TestSavedDiagnosesOfAPod(t *testing.T) {
	const id, pod = "0692a938-77b7-475c-afa6-58bf10c52501", "4a1f7c52-8f1e-4d0c-9a55-0d6f2f6b1c11"
	state := t.TempDir()
	dir := agent.RunsDir(state)
	if err := os.CopyFS(worker.Checkpoints(dir), os.DirFS("agent/testdata/earlier/state/diagnose/checkpoints")); err != nil {
		t.Fatal(err)
	}
	taken := `{"id": "` + id + `", "diagnosis": {"metadata": {"name": "probe-failure-1", "uid": "` + id + `", "annotations": {"kernosis.io/trigger-pod-uid": "` + pod + `"}}, "spec": {"operationSet": "s"}}, "taken": "2026-01-01T00:00:00Z"}`
	if err := os.Mkdir(filepath.Join(dir, "taken"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "taken", id+".json"), []byte(taken), 0o600); err != nil {
		t.Fatal(err)
	}
	for uid, want := range map[string]int{pod: 1, "another": 0} {
		in := why.Input{Subject: why.Subject{Kind: why.KindPod, UID: uid}}
		savedDiagnoses(&in, state)
		if len(in.Diagnoses) != want || len(in.Unread) > 0 {
			t.Errorf("pod %s: %+v, unread %v", uid, in.Diagnoses, in.Unread)
		}
		for _, d := range in.Diagnoses {
			if d.UID != id || d.PodUID != pod {
				t.Errorf("%+v", d)
			}
		}
	}
}
