package diagnosetest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/kernosis/kernosis/cmd/kernosis/agenttest"
	"github.com/kernosis/kernosis/cmd/kernosis/inject"
)

func TestMain(m *testing.M) {
	if inject.RunChild(os.Args) {
		return
	}
	code := m.Run()
	if program.dir != "" {
		os.RemoveAll(program.dir)
	}
	os.Exit(code)
}

// program is kernosis, built once for the tests of the package.
var program struct { //nolint:gochecknoglobals // the tests' only one
	once sync.Once
	dir  string
	err  error
}

// newAgent returns an agent of the real program.
func newAgent(t *testing.T, args ...string) *agenttest.Agent {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: loads programs and provokes real faults")
	}
	program.once.Do(func() {
		//nolint:usetesting // it outlives the test that builds it
		if program.dir, program.err = os.MkdirTemp("", "kernosis-diagnosetest-"); program.err != nil {
			return
		}
		cmd := exec.Command("go", "build", "-tags", "grpcnotrace", "-o", filepath.Join(program.dir, "kernosis"), "../")
		if out, err := cmd.CombinedOutput(); err != nil {
			program.err = fmt.Errorf("build kernosis: %w\n%s", err, out)
		}
	})
	if program.err != nil {
		t.Fatal(program.err)
	}
	return agenttest.New(t, filepath.Join(program.dir, "kernosis"), args...)
}

// kernosis runs a command of the real program to its end.
func kernosis(t *testing.T, args ...string) (code int, out string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(program.dir, "kernosis"), args...)
	text, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(text)
}
