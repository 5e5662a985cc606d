package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/cmd/kernosis/output"
)

func TestUnknownCommands(t *testing.T) {
	for args, want := range map[string]string{
		"rules chekc":           `unknown command "chekc" for "kernosis rules": did you mean check?`,
		"diagnose --help later": `unknown command "later" for "kernosis diagnose": see kernosis diagnose --help`,
		"crds frobnicate":       `unknown command "frobnicate" for "kernosis crds": see kernosis crds --help`,
		"rules":                 "",
		"rules --help":          "",
		"rules check":           "",
		"why pod a/b":           "",
		"rulse":                 `unknown command "rulse" for "kernosis": did you mean rules?`,
		"frobnicate -v":         `unknown command "frobnicate" for "kernosis": see kernosis --help`,
		"why nod worker-7":      `unknown command "nod" for "kernosis why": did you mean node or pod?`,
		"help rulse":            `unknown command "rulse" for "kernosis": did you mean rules?`,
		"help rules chekc":      `unknown command "chekc" for "kernosis rules": did you mean check?`,
		"help rules check":      "",
		"completion basch":      `unknown command "basch" for "kernosis completion": did you mean bash?`,
		"completion bash":       "",
		"__complete why ":       "",
		"-v":                    "",
		"":                      "",
	} {
		got := ""
		if err := unknownCommand(newRoot(), strings.Fields(args)); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", args, got, want)
		}
	}
}

// Usage errors exit with 2 and name the flag or command, and what to write instead; none shows an
// error of Go.
func TestUsageErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "own.txt")
	if err := os.WriteFile(file, []byte("apiVersion: rules.kernosis.io/v1\nrules:\n- {name: a, events: [oomkil], reason: R, message: m}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"run --hung-task-after 5":       `--hung-task-after: "5": want a duration such as 30s, 5m or 1h30m`,
		"inject oom --count many":       `--count: "many": want a whole number`,
		"inject oom --count 1001":       "inject oom: count 1001, want 0 to 1000",
		"inject oom --duration -1s":     "inject oom: duration -1s, want 0 to 10m0s",
		"inject hung-task --count 2":    "inject hung-task: the fault has no count; these have: ",
		"run --diagnose=perhaps":        `--diagnose: "perhaps": want true or false`,
		"agent --kube-api-qps many":     `--kube-api-qps: "many": want a number`,
		"run --hung-task-aftr 5s":       `unknown flag: --hung-task-aftr, did you mean "hung-task-after"?`,
		"why pod":                       "kernosis why pod: wrong number of arguments: 0\nusage: kernosis why pod ",
		"replay":                        "kernosis replay: wrong number of arguments: 0\nusage: kernosis replay ",
		"run --log /var/log/messages":   `log: unknown source "/var/log/messages", did you mean file:/var/log/messages?`,
		"run --log kmgs":                `log: unknown source "kmgs", did you mean "kmsg"?`,
		"run --target foo":              `--target: "foo": want ADDRESS:PORT with an IP address, for example 10.0.0.7:8080`,
		"mute task-hung --for 1h":       "--reason is required",
		"mute task-hung --reason tests": "one of --for, --until and --end is required",
		"rules check " + file:           file + `:3:22: rules[0].events[0]: unknown event kind "oomkil", did you mean "oomkill"?`,
	} {
		root := newRoot()
		root.SetArgs(append(strings.Fields(args), strings.Fields(map[bool]string{true: "--listen= --pin-root= --state-dir=" + t.TempDir()}[strings.HasPrefix(args, "run")])...))
		root.SetOut(io.Discard)
		root.SetErr(io.Discard)
		err := root.ExecuteContext(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "strconv") {
			t.Errorf("%s:\n%v\nwant %s", args, err, want)
		}
		if code := exitCode(err, io.Discard); code != output.ExitInput {
			t.Errorf("%s: exit code %d, want %d", args, code, output.ExitInput)
		}
	}
}
