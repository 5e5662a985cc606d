package operation

import (
	"os"
	"testing"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
)

// The children of real faults are this binary run again.
func TestMain(m *testing.M) {
	switch {
	case inject.RunChild(os.Args):
	case os.Getenv(growerEnv) != "":
		grow()
	default:
		os.Exit(leakChecked(m))
	}
}
