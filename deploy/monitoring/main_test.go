package monitoring_test

import (
	"os"
	"testing"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/vmtest/agenttest"
	"github.com/kernosis/kernosis/vmtest/kubetest"
)

var cluster = kubetest.Shared{Own: true} // the controller handles all nodes and policies

func TestMain(m *testing.M) {
	if inject.RunChild(os.Args) || agenttest.RunProber(os.Args) {
		return
	}
	os.Exit(cluster.Run(m))
}
