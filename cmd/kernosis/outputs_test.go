package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/kernosis/kernosis/cmd/kernosis/output"
)

// All lists and states have the same output formats, and JSON and YAML have the same content.
func TestOutputs(t *testing.T) {
	dir := t.TempDir()
	mutes := filepath.Join(dir, "mutes.yaml")
	if code, out := command(t, "mute", "oom-kill", "--for", "1h", "--reason", "a test", "--state-dir", dir); code != output.ExitOK {
		t.Fatal(out)
	}
	for args, want := range map[string]int{
		"rules list": output.ExitOK, "diagnose operations": output.ExitOK, "diagnose operations smart": output.ExitOK, "diagnose sets": output.ExitOK,
		"diagnose show --state-dir " + dir: output.ExitOK, "mute --mutes " + mutes: output.ExitOK, "version": output.ExitOK,
		"status --endpoint 127.0.0.1:1 --state-dir " + dir: output.ExitInput,
	} {
		t.Run(args, func(t *testing.T) {
			read := func(form string) string {
				t.Helper()
				code, out := command(t, append(strings.Fields(args), "-o", form)...)
				if code != want || out == "" {
					t.Errorf("-o %s: exit code %d\n%s", form, code, out)
				}
				return out
			}
			if code, out := command(t, strings.Fields(args)...); code != want || out == "" || strings.HasPrefix(out, "{") {
				t.Errorf("exit code %d\n%s", code, out)
			}
			read("table")
			read("wide")
			var fromJSON, fromYAML any
			if err := json.Unmarshal([]byte(read("json")), &fromJSON); err != nil {
				t.Error(err)
			}
			if err := yaml.Unmarshal([]byte(read("yaml")), &fromYAML); err != nil {
				t.Error(err)
			}
			if strings.HasPrefix(args, "status") { // contains the time
				return
			}
			if diff := cmp.Diff(fromJSON, fromYAML); diff != "" {
				t.Errorf("JSON and YAML differ:\n%s", diff)
			}
		})
	}
}

// The values of all --output flags are checked and completed in the same way.
func TestEachOutputIsAFormat(t *testing.T) {
	others := map[string]string{
		"kernosis run": "of the configuration", "kernosis agent": "of the configuration", "kernosis config print": "of the configuration",
		"kernosis bundle": "a file",
	}
	forEachCommand(newRoot(), func(cmd *cobra.Command) {
		f := cmd.Flags().Lookup("output")
		if f == nil || others[cmd.CommandPath()] != "" {
			return
		}
		if f.Value.Type() != "format" || f.Shorthand != "o" || !strings.Contains(f.Usage, f.DefValue) {
			t.Errorf("%s: -%s, --output is a %s: %s", cmd.CommandPath(), f.Shorthand, f.Value.Type(), f.Usage)
		}
	})
}

// forEachCommand calls f for a command and all below it, except those that cobra adds.
func forEachCommand(cmd *cobra.Command, f func(*cobra.Command)) {
	f(cmd)
	for _, c := range cmd.Commands() {
		if c.Name() != "help" && c.Name() != "completion" {
			forEachCommand(c, f)
		}
	}
}

func TestConfigPrintAs(t *testing.T) {
	t.Setenv("KERNOSIS_JOURNAL_MIB", "7")
	out, _, err := printed(t, "log-level: debug\n", "--as", "table", "--state-dir", "/flag")
	for _, want := range []string{"KEY  ", "/flag\"", "flag --state-dir\n", "journal-mib", "env KERNOSIS_JOURNAL_MIB\n", "kernosis.yaml:1\n"} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s%v", want, out, err)
		}
	}
	out, _, err = printed(t, "", "--as", "json")
	var list []setting
	if err != nil || json.Unmarshal([]byte(out), &list) != nil || len(list) < 50 || list[0] != (setting{"state-dir", "/var/lib/kernosis", "default"}) {
		t.Errorf("%v\n%.300s", err, out)
	}
	if _, _, err = printed(t, "", "--as", "xml"); err == nil || !strings.Contains(err.Error(), `--as: "xml": want yaml, table, wide or json`) {
		t.Error(err)
	}
}
