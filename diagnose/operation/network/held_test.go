package network

import (
	"testing"
	"time"

	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/vmtest/netlab"
	"github.com/kernosis/kernosis/vmtest/operationtest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// TestPacketCaptureWhileRTNLIsHeld: reading the names of devices needs rtnl_lock, capturing packets
// does not. A capture works without names, and ends on time.
func TestPacketCaptureWhileRTNLIsHeld(t *testing.T) {
	testenv.OnlyInTestAll(t)
	n := netlab.New(t)
	n.Serve("127.0.0.1:80", netlab.Echo)
	lock := netlab.New(t)
	const duration = 200 * time.Millisecond
	params := map[string]string{"netns": inode(n), "where": "given", "port": "80", "packets": "1000000", "bytes": "64Mi", "duration": duration.String()}
	var out operation.Output
	var files *operationtest.Artifacts
	var held func() bool
	var took time.Duration
	for bridges := 600; held == nil || !held(); bridges *= 2 {
		if bridges > 5000 {
			t.Fatalf("the lock was not held for the %v of the capture", took)
		}
		held = lock.HoldRTNL(bridges)
		began := time.Now()
		out, files = captureWhile(t, n, params, talkTo(n, "127.0.0.1:80", "request"))
		took = time.Since(began)
	}
	t.Logf("took %v", took)
	wantResults(t, out, map[string]string{"stoppedBy": "^duration$", "syn": "^[1-9]", "flows": "on device 1: ", "note": "can't read device names"})
	if packets := readCapture(t, files); len(packets) == 0 {
		t.Error("the file has no packets")
	}
	if limit := testenv.Within(3*answer + duration); took > limit {
		t.Errorf("took %v, want at most %v", took, limit)
	}
	testenv.Until(t, "the lock is free for the next test", time.Minute, func() bool { return !held() })
}
