package network

import (
	"os"
	"testing"

	"github.com/kernosis/kernosis/vmtest/testenv"
)

func TestMain(m *testing.M) {
	testenv.HoldKernelForProcess()
	os.Exit(testenv.CheckLeaks(m.Run))
}
