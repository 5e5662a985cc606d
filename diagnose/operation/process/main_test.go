package process

import (
	"os"
	"testing"

	"github.com/kernosis/kernosis/vmtest/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.CheckLeaks(m.Run)) }
