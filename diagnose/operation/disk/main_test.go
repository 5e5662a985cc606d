package disk

import (
	"os"
	"testing"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// Children that inject real faults are this binary.
func TestMain(m *testing.M) {
	if !inject.RunChild(os.Args) {
		testenv.HoldKernelForProcess()
		os.Exit(testenv.CheckLeaks(m.Run))
	}
}
