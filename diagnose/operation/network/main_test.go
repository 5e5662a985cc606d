package network

import (
	"os"
	"testing"

	"github.com/kernosis/kernosis/vmtest/kernellock"
	"github.com/kernosis/kernosis/vmtest/leakcheck"
)

func TestMain(m *testing.M) {
	kernellock.Hold()
	os.Exit(leakcheck.Run(m.Run))
}
