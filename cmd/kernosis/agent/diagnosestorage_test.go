package agent

import (
	"strings"
	"testing"

	"github.com/kernosis/kernosis/cmd/kernosis/config"
)

// The agent writes results of operations below this folder, so nothing else may use it.
func TestDiagnoseStorageDir(t *testing.T) {
	for dir, want := range map[string]string{
		"":                            "",
		"/var/lib/kubediag":           "",
		"/srv/results":                "",
		"results":                     "want an absolute path",
		"/":                           "want a dedicated folder",
		"/etc/kernosis":               "want a dedicated folder",
		"/var/lib":                    "want a dedicated folder",
		"/var/lib/kernosis":           "want a dedicated folder",
		"/var/lib/kernosis/diagnose/": "want a dedicated folder",
		"/srv/../etc":                 "want a dedicated folder",
	} {
		s := diagnoseSettings{Keep: 1, ArtifactsMiB: 1, StorageDir: dir}
		err := s.check(config.Origins{}, "/var/lib/kernosis")
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "diagnose-storage-dir")) {
			t.Errorf("%q: %v, want %q", dir, err, want)
		}
	}
}
