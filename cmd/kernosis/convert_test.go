package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/cmd/kernosis/output"
)

// runConvert runs the command as main does.
func runConvert(t *testing.T, stdin string, args ...string) (out, reported string, code int) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := newConvert()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetIn(strings.NewReader(stdin))
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	cmd.SetArgs(args)
	code = exitCode(cmd.ExecuteContext(t.Context()), &stderr)
	return stdout.String(), stderr.String(), code
}

const kubediagOperations = `apiVersion: diagnosis.kubediag.org/v1
kind: Operation
metadata: {name: mounts}
spec: {processor: {httpServer: {path: /processor/mountInfoCollector}}}
---
apiVersion: diagnosis.kubediag.org/v1
kind: Operation
metadata: {name: old}
spec: {processor: {function: {runtime: Python3, codeSource: {a: b}}}}
`

func TestConvert(t *testing.T) {
	const converted = `apiVersion: kernosis.io/v1alpha1
kind: Operation
metadata:
  name: mounts
spec:
  processor:
    builtin:
      name: mounts
`
	file := write(t, t.TempDir(), "kubediag.yaml", kubediagOperations)
	for _, args := range [][]string{{file}, {"-"}} {
		out, reported, code := runConvert(t, kubediagOperations, args...)
		if out != converted || code != output.ExitOK {
			t.Errorf("%v: exit %d\n%s", args, code, out)
		}
		if !strings.Contains(reported, ":9: lost: document 2: Operation old: spec.processor.function: functions have no counterpart") ||
			!strings.Contains(reported, ":4: note: document 1: Operation mounts: spec.processor.httpServer.path: mountInfoCollector") {
			t.Errorf("%v: %s", args, reported)
		}
	}
	out, reported, code := runConvert(t, kubediagOperations, "--strict", "-")
	if out != "" || code != output.ExitFailed || !strings.Contains(reported, "something would be lost") {
		t.Errorf("strict: exit %d\n%s%s", code, out, reported)
	}
	first, _, _ := strings.Cut(kubediagOperations, "---")
	if out, reported, code = runConvert(t, first, "--strict", "-"); out != converted || code != output.ExitOK {
		t.Errorf("strict, nothing lost: exit %d\n%s%s", code, out, reported)
	}
}

func TestConvertRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		stdin string
		args  []string
		want  string
	}{
		"unknown key": {strings.Replace(kubediagOperations, "runtime:", "runtim:", 1), []string{"-"}, "stdin:9:31: spec.processor.function.runtim: unknown field"},
		"no file":     {"", []string{"/none.yaml"}, "/none.yaml: no such file or directory"},
		"nothing":     {"", nil, "requires at least 1 arg"},
	} {
		t.Run(name, func(t *testing.T) {
			out, reported, code := runConvert(t, test.stdin, test.args...)
			if out != "" || code != output.ExitInput || !strings.Contains(reported, test.want) {
				t.Errorf("exit %d\n%s%s", code, out, reported)
			}
		})
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestConvertReportsWhatItCannotWrite(t *testing.T) {
	var stderr bytes.Buffer
	cmd := newConvert()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetIn(strings.NewReader(kubediagOperations))
	cmd.SetOut(brokenPipe{})
	cmd.SetErr(&stderr)
	cmd.SetArgs([]string{"-"})
	if code := exitCode(cmd.ExecuteContext(t.Context()), &stderr); code != output.ExitFailed || !strings.HasSuffix(stderr.String(), "kernosis: broken pipe\n") {
		t.Errorf("exit %d: %s", code, stderr.String())
	}
}
