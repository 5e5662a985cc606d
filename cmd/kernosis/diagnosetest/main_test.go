package diagnosetest

import (
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/vmtest/agenttest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

func TestMain(m *testing.M) {
	if inject.RunChild(os.Args) {
		return
	}
	os.Exit(m.Run())
}

// newAgent returns an agent of the real program.
func newAgent(t *testing.T, args ...string) *agenttest.Agent {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: loads programs and provokes real faults")
	}
	program := agenttest.Program(t)
	testenv.HoldKernel(t)
	return agenttest.New(t, program, args...)
}

// kernosis runs a command of the real program to its end.
func kernosis(t *testing.T, args ...string) (code int, out string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), agenttest.Program(t), args...)
	text, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(text)
}
