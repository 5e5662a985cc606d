package memory

import (
	"os"
	"testing"

	"github.com/kernosis/kernosis/vmtest/kernellock"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

func TestMain(m *testing.M) {
	if os.Getenv(growerEnv) != "" {
		grow()
		return
	}
	kernellock.Hold()
	os.Exit(testenv.CheckLeaks(m.Run))
}
