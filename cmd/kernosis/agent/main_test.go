package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v4"

	"github.com/kernosis/kernosis/vmtest/leakcheck"
)

func TestMain(m *testing.M) { os.Exit(leakcheck.Run(m.Run)) }

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
	var text strings.Builder
	enc := yaml.NewEncoder(&text)
	enc.SetIndent(2)
	err = enc.Encode(doc)
	return text.String(), err
}
