package memory

import (
	"os"
	"testing"

	"github.com/kernosis/kernosis/vmtest/testenv"
)

func TestMain(m *testing.M) {
	if os.Getenv(growerEnv) != "" {
		grow()
		return
	}
	testenv.HoldKernelForProcess()
	os.Exit(testenv.CheckLeaks(m.Run))
}
