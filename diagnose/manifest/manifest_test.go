package manifest_test

import (
	"testing"

	"github.com/kernosis/kernosis/diagnose/manifest"
)

func TestExamples(t *testing.T) {
	s, err := manifest.Load([]string{"testdata/examples.yaml"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.OperationSets) != 1 || len(s.Operations) != 1 {
		t.Error(s)
	}
	t.Logf("%+v", s.RemediationPolicies[0])
	t.Logf("%+v", s.Operations[0])
	t.Logf("%+v", s.Triggers[0])
	t.Logf("%+v", s.Diagnoses[0])
}
