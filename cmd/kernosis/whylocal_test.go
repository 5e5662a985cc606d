package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/kernosis/kernosis/cmd/kernosis/agent"
	"github.com/kernosis/kernosis/diagnose/why"
	"github.com/kernosis/kernosis/diagnose/worker"
)

// The agent's Diagnoses have the UIDs of their object and pod, also those without a parameter podUID.
func TestSavedDiagnosesOfAPod(t *testing.T) {
	const id, pod = "0692a938-77b7-475c-afa6-58bf10c52501", "4a1f7c52-8f1e-4d0c-9a55-0d6f2f6b1c11"
	state := savedState(t, id, `{"metadata": {"name": "probe-failure-1", "uid": "`+id+`", "annotations": {"kernosis.io/trigger-pod-uid": "`+pod+`"}}, "spec": {"operationSet": "s"}}`)
	for uid, want := range map[string]int{pod: 1, "another": 0} {
		in := why.Input{Subject: why.Subject{Kind: why.KindPod, UID: uid}}
		savedDiagnoses(&in, state, nil)
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

// A Diagnosis that a user has created explains only the user's pod, and not the node.
func TestSavedDiagnosesOfUsers(t *testing.T) {
	const id, pod = "0692a938-77b7-475c-afa6-58bf10c52501", "4a1f7c52-8f1e-4d0c-9a55-0d6f2f6b1c11"
	about := func(namespace, podNamespace string) string {
		return `{"metadata": {"namespace": "` + namespace + `", "name": "mine", "uid": "` + id + `", "annotations": {"kernosis.io/trigger-pod-uid": "` + pod + `"}},
			"spec": {"operationSet": "s", "podReference": {"namespace": "` + podNamespace + `", "name": "web-1"}}}`
	}
	for name, c := range map[string]struct {
		diagnosis, kind string
		want            bool
	}{
		"of a user, the node":                      {about("shop", "shop"), why.KindNode, false},
		"of a user, the namespace omitted":         {about("shop", ""), why.KindNode, false},
		"of a user, the pod":                       {about("shop", "shop"), why.KindPod, true},
		"of the agents":                            {about("kernosis", "shop"), why.KindNode, true},
		"of the agents, about a pod of theirs":     {about("kernosis", "kernosis"), why.KindNode, true},
		"of agents in a namespace that is unknown": {about("monitoring", "shop"), why.KindNode, true},
	} {
		in := why.Input{Subject: why.Subject{Kind: c.kind, UID: pod}}
		savedDiagnoses(&in, savedState(t, id, c.diagnosis), []string{"kernosis"})
		if got := slices.ContainsFunc(in.Diagnoses, func(d why.Diagnosis) bool { return d.UID == id }); got != c.want || len(in.Unread) > 0 {
			t.Errorf("%s: %+v, unread %v", name, in.Diagnoses, in.Unread)
		}
	}
}

// savedState returns a state folder with runs, of which the agent has taken one.
func savedState(t *testing.T, id, diagnosis string) string {
	t.Helper()
	state := t.TempDir()
	dir := agent.RunsDir(state)
	if err := os.CopyFS(worker.Checkpoints(dir), os.DirFS("agent/testdata/earlier/state/diagnose/checkpoints")); err != nil {
		t.Fatal(err)
	}
	taken := `{"id": "` + id + `", "diagnosis": ` + diagnosis + `, "taken": "2026-01-01T00:00:00Z"}`
	if err := os.Mkdir(filepath.Join(dir, "taken"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "taken", id+".json"), []byte(taken), 0o600); err != nil {
		t.Fatal(err)
	}
	return state
}
