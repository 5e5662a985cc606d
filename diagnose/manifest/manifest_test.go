package manifest_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/diagnose/api/apitest"
	"github.com/kernosis/kernosis/diagnose/manifest"
	"github.com/kernosis/kernosis/diagnose/yamldoc"
)

// The same manifests are held against the API server in diagnose/api/v1alpha1.
func TestManifestsAreRefusedAsTheServerDoes(t *testing.T) {
	for _, test := range apitest.Cases(t) {
		t.Run(test.Name, func(t *testing.T) {
			_, err := manifest.Parse(yamldoc.File{Name: "f.yaml", Data: []byte(test.Text)})
			if test.Accepted() {
				if err != nil {
					t.Error(err)
				}
				return
			}
			var errs yamldoc.Errors
			if !errors.As(err, &errs) {
				t.Fatalf("have %v", err)
			}
			if !slices.ContainsFunc(errs, func(e *yamldoc.Error) bool {
				return e.Field == test.Field && strings.Contains(e.Msg, test.Message) && e.Line > 0
			}) {
				t.Errorf("want %s: %s\nhave %v", test.Field, test.Message, err)
			}
		})
	}
}
