package detector_test

import (
	"os"
	"testing"

	"github.com/kernosis/kernosis/vmtest/leakcheck"
)

func TestMain(m *testing.M) { os.Exit(leakcheck.Run(m.Run)) }
