package netlook

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/bounded"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/vmtest/await"
	"github.com/kernosis/kernosis/vmtest/netlab"
	"github.com/kernosis/kernosis/vmtest/testall"
)

// held are bridges: the kernel takes rtnl_lock once to delete them all, and tens of
// milliseconds for each.
const heldBridges = 20

// TestRTNLIsHeld: while the kernel holds rtnl_lock, a question that needs it is given up in
// time, what does not need it is answered, and no more threads than allowed are left behind.
func TestRTNLIsHeld(t *testing.T) {
	testall.Only(t) // other tests of this machine wait for the lock as well
	if os.Geteuid() != 0 {
		t.Skip("needs root to make network devices")
	}
	ip, err := exec.LookPath("ip")
	if err != nil {
		t.Skip("ip is missing")
	}
	n := netlab.New(t)
	n.Listen("127.0.0.1:80", 5)
	const answer = 50 * time.Millisecond
	spaces := NewNamespaces(hostfs.New("/"), answer)
	var batch strings.Builder
	for i := range heldBridges {
		fmt.Fprintf(&batch, "link add b%d group 42 type bridge\n", i)
	}
	file := filepath.Join(t.TempDir(), "batch")
	if err := os.WriteFile(file, []byte(batch.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	n.Command(ip, "-batch", file)
	var remove *exec.Cmd
	n.In(func() error {
		remove = exec.Command(ip, "link", "del", "group", "42")
		return remove.Start()
	})
	began := time.Now()
	ended := make(chan error, 1)
	go func() { ended <- remove.Wait() }()

	to, before := netip.MustParseAddr("127.0.0.1"), Stats()
	var longest, hold time.Duration
	late, behind := 0, 0
	for held := true; held; {
		select {
		case err := <-ended:
			if err != nil {
				t.Fatal(err)
			}
			held, hold = false, time.Since(began)
			continue
		default:
		}
		asked := time.Now()
		v, err := spaces.Open(n.Inode, 0)
		if err == nil {
			listener := v.Listener(netip.AddrPortFrom(to, 80))
			r := v.RouteTo(to)
			if r.Known && (!r.Local || !listener.Present) {
				t.Errorf("route %+v, listener %+v", r, listener)
			}
			if r.Known && r.Dev == "" {
				late++
			}
			v.Close()
		} else if !errors.Is(err, bounded.ErrLate) {
			t.Fatal(err)
		}
		longest = max(longest, time.Since(asked))
		behind = max(behind, Stats().Behind)
	}
	st := Stats()
	t.Logf("held for %v; the longest look took %v, %d were given up, %d threads were left behind, %d questions were refused", hold, longest, late, behind, st.Refused-before.Refused)
	if late == 0 || behind == 0 || behind > maxBehind {
		t.Errorf("%d looks were given up, %d threads were left behind", late, behind)
	}
	// Open, the listener, the route and the device, each twice the answer's time.
	if limit := await.Within(8 * answer); longest > limit {
		t.Errorf("a look took %v, want at most %v", longest, limit)
	}
	await.Until(t, "the threads have returned", 20*time.Second, func() bool { return Stats().Behind == 0 })
	v := view(t, n)
	if r := v.RouteTo(to); !r.Known || !r.Local || r.Dev != "lo" {
		t.Errorf("afterwards the route is %+v", r)
	}
}
