package main

import (
	"bytes"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kernosis/kernosis/cmd/kernosis/output"
)

// The help of each command has an example, each example is a valid command line, and no flag names
// its value by a Go type.
func TestHelp(t *testing.T) {
	ofGo := []string{"string", "strings", "stringArray", "stringToString", "int", "int32", "int64", "uint", "uint16", "uint32", "uint64", "float", "float32", "float64"}
	forEachCommand(newRoot(), func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			name, usage := pflag.UnquoteUsage(f)
			if !f.Hidden && (slices.Contains(ofGo, name) || usage == "") {
				t.Errorf("%s: --%s %s: %s", cmd.CommandPath(), f.Name, name, usage)
			}
		})
		if cmd.HasSubCommands() {
			return
		}
		if cmd.Short == "" || !strings.Contains(cmd.Example, "kernosis "+strings.TrimPrefix(cmd.CommandPath(), "kernosis ")) {
			t.Errorf("%s has no example of itself: %s", cmd.CommandPath(), cmd.Example)
		}
		for line := range strings.Lines(cmd.Example) {
			understood(t, cmd, line)
		}
	})
}

// commandLine is the part of an example that calls kernosis.
var commandLine = regexp.MustCompile(`(?:kubectl )?kernosis ([^|>#]*)`)

// understood checks command, flags and arguments of an example's line.
func understood(t *testing.T, of *cobra.Command, line string) {
	t.Helper()
	m := commandLine.FindStringSubmatch(line[strings.LastIndex(line, " -- ")+1:])
	if m == nil {
		t.Errorf("%s: no command in %q", of.CommandPath(), line)
		return
	}
	root := newRoot()
	args := words(m[1])
	cmd, rest, err := root.Find(args)
	if err != nil || cmd.CommandPath() != of.CommandPath() {
		t.Errorf("%q is of %s, %v", line, cmd.CommandPath(), err)
		return
	}
	if err := cmd.ParseFlags(rest); err != nil {
		t.Errorf("%q: %v", line, err)
	}
	if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
		t.Errorf("%q: %v", line, err)
	}
}

// words splits a command line as a shell does, as far as the examples need.
func words(line string) []string {
	var out []string
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			out = append(out, part)
		} else {
			out = append(out, strings.Fields(part)...)
		}
	}
	return out
}

// Shell completion offers names and values.
func TestCompletion(t *testing.T) {
	state := t.TempDir()
	at := " --state-dir " + state + " "
	if code, out := command(t, "mute", "oom-kill", "--for", "1h", "--reason", "r", "--state-dir", state); code != output.ExitOK {
		t.Fatal(out)
	}
	for args, want := range map[string]string{
		"mute" + at:                                "disk-io-error",
		"mute --end" + at:                          "oom-kill",
		"mute disk-io-error" + at + "--where ":     "device.name=",
		"graph --shipped ":                         "hung-task",
		"diagnose run --shipped disk-error -p ":    "device=",
		"diagnose operations ":                     "check-disk-stalled",
		"diagnose sets ":                           "oom-kill",
		"rules docs ":                              "oom-kill",
		"inject ":                                  "accept-queue-full",
		"status -o ":                               "yaml",
		"graph -o ":                                "mermaid",
		"rules test -o ":                           "junit",
		"config print --as ":                       "table",
		"config print --for ":                      "run",
		"replay --format ":                         "dmesg",
		"run --log-level ":                         "debug",
		"agent --pods-from ":                       "kubelet",
		"health-checker --component ":              "kube-proxy",
		"diagnose show --state-dir " + state + " ": "",
		"rules check " + filepath.Join(state, "mut") + "": "", // a file, which the shell completes
	} {
		root := newRoot()
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetErr(io.Discard)
		root.SetArgs(append([]string{cobra.ShellCompRequestCmd}, strings.Split(args, " ")...))
		if err := root.ExecuteContext(t.Context()); err != nil {
			t.Errorf("%q: %v", args, err)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		names := lines[:len(lines)-1] // the last is the directive
		if want == "" && len(names) != 0 || want != "" && !slices.Contains(names, want) {
			t.Errorf("%q completes to %q, without %q", args, names, want)
		}
		if strings.HasPrefix(args, "mute --end") && len(names) != 1 {
			t.Errorf("%q completes to %q", args, names)
		}
	}
}
