package operation

import (
	"os"
	"testing"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
)

// The children of real faults are this binary run again.
func TestMain(m *testing.M) {
	if inject.RunChild(os.Args) {
		return
	}
	os.Exit(m.Run())
}
