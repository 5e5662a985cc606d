package network

import (
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/vmtest/netlab"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// No run leaves a goroutine or a descriptor behind, whether it succeeds or not.
func TestNetLeavesNothingBehind(t *testing.T) {
	testenv.OnlyInTestAll(t)
	node, pod := netlab.PairIn(t, 34)
	h := labHost(t, node, pod)
	pod.Serve("10.97.34.2:80", silent)
	pod.Listen("10.97.34.2:81", 0)
	builtins := []operation.Builtin{
		Sockets(h), CheckNoListener(h), CheckAcceptQueueFull(h), CheckSYNDropped(h), CheckAppSilent(h), Routes(h), Neighbours(h), Links(h),
		NetworkDrops(h), CheckNoRoute(h), CheckNeighbourFailed(h), CheckLinkDown(h), CheckConntrackFull(h), PacketCapture(h), ReProbe(h), CheckProbeFails(h), CheckProbeRecovers(h),
	}
	params := map[string]string{
		"netns": inode(node), "address": "10.97.34.2", "window": "1ms", "duration": "10ms", "timeout": "50ms", "attempts": "1", "successes": "1",
	}
	all := func() {
		for _, protocol := range []string{"tcp", "http", "https", "grpc"} {
			for _, port := range []string{"80", "81", "82"} {
				params["protocol"], params["port"] = protocol, port
				for _, b := range builtins {
					_, _, _ = run(t, b, params) // whatever it finds
				}
			}
		}
	}
	all() // creates what is cached
	before := descriptors(t)
	leaks := goleak.IgnoreCurrent()
	all()
	if err := goleak.Find(leaks); err != nil {
		t.Error(err)
	}
	testenv.Until(t, "descriptors to be closed", 10*time.Second, func() bool { return descriptors(t) <= before })
}

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}
