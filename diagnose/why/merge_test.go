package why_test

import (
	"testing"

	"github.com/kernosis/kernosis/diagnose/why"
)

// The journal names a Diagnosis by its run, which is the UID in the API unless the node's own trigger
// made it.
func TestMergedDiagnoses(t *testing.T) {
	const uid = "4a1f7c52-8f1e-4d0c-9a55-0d6f2f6b1c11"
	api := why.Input{Diagnoses: []why.Diagnosis{
		{Namespace: "kernosis", Name: "oom-kill-n7-1", UID: "5b1f7c52-8f1e-4d0c-9a55-0d6f2f6b1c11"},
		{Namespace: "shop", Name: "mine", UID: uid},
	}}
	journal := why.Input{Diagnoses: []why.Diagnosis{{Name: "oom-kill-n7-1"}, {Name: uid, UID: uid}, {Name: "by-hand"}, {Name: "not-in-the-ledger"}}}
	got := why.Merge(journal, api).Diagnoses
	if len(got) != 4 || got[2].Name != "by-hand" || got[3].Name != "not-in-the-ledger" {
		t.Errorf("%+v", got)
	}
}
