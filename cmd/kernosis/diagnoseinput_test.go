package main

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/cmd/kernosis/output"
)

func TestDiagnoseInput(t *testing.T) {
	h, state := newHook(t), t.TempDir()
	demo := writeSet(t, "set.yaml", setOfDemo(h.port))
	unknown := writeSet(t, "unknown.yaml", strings.Replace(setOfDemo(h.port), "check-lock-holder", "check-lockholder", 1))
	script := writeSet(t, "script.yaml", strings.Replace(setOfDemo(h.port), "effect: Collect\n  processor: {httpServer: {port: "+strconv.Itoa(int(h.port))+"}}", "effect: Collect\n  processor: {scriptRunner: {script: 'echo hello', operationResultKey: x}}", 1))
	if code, out, errs := diagnoseCommand(t.Context(), "run", "-f", demo, "--id", "d1", "--state-dir", state); code != output.ExitOK {
		t.Fatal(out, errs)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"run"}, "kernosis: run: want a file (-f set.yaml), or --shipped with one of disk-error, hung-task, oom-kill, probe-failure\n"},
		{[]string{"run", "-f", demo, "--shipped", "oom-kill"}, "kernosis: run: want -f or --shipped, not both\n"},
		{[]string{"run", "--shipped", "hung-tsk"}, `kernosis: no shipped OperationSet is named "hung-tsk", did you mean "hung-task"? there are `},
		{[]string{"run", "--shipped", "hung-task", "oom-kill"}, `--shipped already names the OperationSet: omit "oom-kill"`},
		{[]string{"run", "-f", unknown}, unknown + `:8:13: spec.adjacencyList[2].operation: node 2: no Operation or built-in is named "check-lockholder", did you mean "check-lock-holder"?`},
		{[]string{"run", "-f", script}, "kernosis: run: node 1 (ask) is a script: allow it with --allow-scripts\n"},
		{[]string{"run", "--shipped", "oom-kill", "-p", "cgroop=/x"}, `kernosis: parameter "cgroop": no operation of the graph has it, did you mean "cgroup"?`},
		{[]string{"run", "--shipped", "probe-failure", "-p", "port=http"}, "parameter address is required by node 2 (check-no-route), 3 (check-neighbour-failed)\n"},
		{[]string{"run", "--shipped", "probe-failure", "-p", "port=http"}, `parameter port: "http": want a whole number`},
		{[]string{"run", "--shipped", "oom-kill", "-p", "cgroup"}, `kernosis: parameter "cgroup": want key=value`},
		{[]string{"run", "--shipped", "oom-kill", "-p", "pid=1", "-p", "pid=2"}, `kernosis: parameter "pid=2": given twice`},
		{[]string{"run", "-f", demo, "--id", "../x"}, `kernosis: run: "../x" is not the ID of a diagnosis`},
		{[]string{"run", "-f", demo, "--id", "d1", "-p", "a=b"}, "kernosis: run: d1 was started with other parameters (none); omit -p to resume it, or start a new run without --id\n"},
		{[]string{"run", "-f", demo, "-o", "svg"}, `kernosis: --output: "svg": want table, wide, json or yaml`},
		{[]string{"run", "-f", demo, "--keep", "0"}, "kernosis: keep 0: want 1 or more"},
		{[]string{"show", "d2"}, `kernosis: show: no run "d2" in ` + filepath.Join(state, "diagnose") + `, did you mean "d1"?`},
		{[]string{"show", "../x"}, `kernosis: show: "../x" is not the ID of a diagnosis`},
		{[]string{"show", "-o", "svg"}, `kernosis: --output: "svg" needs a RUN`},
		{[]string{"show", "-o", "png"}, `kernosis: --output: "png": want table, wide, json, yaml, mermaid, dot or svg`},
		{[]string{"sets", "oom"}, `kernosis: no shipped OperationSet is named "oom"; there are disk-error,`},
		{[]string{"operations", "mount"}, `kernosis: operations: unknown built-in operation "mount", did you mean "mounts"?`},
	} {
		args := c.args
		if args[0] == "run" || args[0] == "show" {
			args = append(args, "--state-dir", state)
		}
		code, out, errs := diagnoseCommand(t.Context(), args...)
		if code != output.ExitInput || out != "" || !strings.Contains(errs, c.want) {
			t.Errorf("%v: exit code %d\n%s%s\nwant %s", c.args, code, out, errs, c.want)
		}
	}
}
