package operation

import (
	"os"
	"testing"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/vmtest/kernellock"
	"github.com/kernosis/kernosis/vmtest/leakcheck"
)

// The children of real faults are this binary run again.
func TestMain(m *testing.M) {
	switch {
	case inject.RunChild(os.Args):
	case os.Getenv(growerEnv) != "":
		grow()
	default:
		kernellock.Hold()
		os.Exit(leakcheck.Run(m.Run))
	}
}
