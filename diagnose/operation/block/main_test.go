package block

import (
	"os"
	"testing"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/vmtest/kernellock"
	"github.com/kernosis/kernosis/vmtest/leakcheck"
)

// The children of real faults are this binary run again.
func TestMain(m *testing.M) {
	if !inject.RunChild(os.Args) {
		kernellock.Hold()
		os.Exit(leakcheck.Run(m.Run))
	}
}
