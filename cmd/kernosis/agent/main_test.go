package agent

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/pflag"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// The child processes of real faults run this binary again.
func TestMain(m *testing.M) {
	if inject.RunChild(os.Args) {
		return
	}
	os.Exit(testenv.CheckLeaks(m.Run))
}

// printed returns the settings of the agent with a file and arguments, as YAML with their origins.
func printed(t *testing.T, file string, args ...string) (string, error) {
	t.Helper()
	fs := pflag.NewFlagSet("agent", pflag.ContinueOnError)
	Flags(fs)
	if file != "" {
		path := filepath.Join(t.TempDir(), "kernosis.yaml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--config", path)
	}
	if err := fs.Parse(args); err != nil {
		return "", err
	}
	cfg, err := Load(fs, nil)
	if err != nil {
		return "", err
	}
	doc, err := cfg.Document()
	if err != nil {
		return "", err
	}
	text, err := document.EncodeYAML(doc)
	return string(text), err
}
