package network

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/vmtest/netlab"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

func TestSockets(t *testing.T) {
	prober, target := netlab.PairIn(t, 33)
	uid, _ := podOf(t, target)
	target.Listen("[::]:80", 0)
	target.Serve("10.97.33.2:81", netlab.Echo)
	prober.Dial("10.97.33.2:80") // the queue holds one
	open := prober.Dial("10.97.33.2:81")
	if _, err := open.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := open.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	self := strconv.Itoa(os.Getpid())

	stop := keepProbing(prober, "10.97.33.2:80") // finds the queue full
	out, files := must(t, Sockets(host()), map[string]string{
		"netns": inode(prober), "address": "10.97.33.2", "port": "80", "window": "2s",
	})
	stop()
	wantResults(t, out, map[string]string{
		"listening": "^true$", "listener": `^\[::\]:80$`, "queue": "^1$", "queueMax": "^0$", "ownerPID": "^" + self + "$",
		"listeners": `^\[::\]:80 1/0 .*\[` + self + `\]$`, "states": "ESTABLISHED 1, LISTEN 1", "overflows": "^[1-9]", "drops": "^[1-9]",
		"targetNetNS": inode(target), "note": "^$", "synReceived": "^0$",
	})
	if text := files.Read(t, "sockets.txt"); strings.Count(text, "\n") != 3 || !matches(text, `(?m)^LISTEN +1 +0 +\[::\]:80 `) {
		t.Errorf("artifact\n%s", text)
	}

	out, _ = must(t, Sockets(host()), map[string]string{"podUID": uid, "window": "0s"})
	wantResults(t, out, map[string]string{"listening": "^$", "listeners": "10.97.33.2:81 0/", "states": "ESTABLISHED 2, LISTEN 2"})

	out, _ = must(t, Sockets(host()), map[string]string{"podUID": uid, "address": "10.97.33.2", "port": "82", "window": "0s"})
	wantResults(t, out, map[string]string{"listening": "^false$", "listener": "^$", "queue": "^$"})

	fail(t, Sockets(host()), map[string]string{"podUID": uid, "address": "10.97.33.1", "port": "80"}, "is not an address of pod "+uid)
}

// A retransmission is reported while it is in progress.
func TestSocketsRetransmit(t *testing.T) {
	prober, target := netlab.PairIn(t, 33)
	target.Serve("10.97.33.2:81", silent)
	c := prober.Dial("10.97.33.2:81")
	target.DropTCP()
	if _, err := c.Write([]byte("lost")); err != nil {
		t.Fatal(err)
	}
	var out operation.Output
	testenv.Until(t, "a retransmission", 10*time.Second, func() bool {
		var err error
		out, _, err = run(t, Sockets(host()), map[string]string{"netns": inode(prober), "window": "0s"})
		return err == nil && out.Results["retransmitting"] == "1"
	})
	wantResults(t, out, map[string]string{"unacked": "^1$", "retransmits": "^[1-9]", "maxRTO": "s$"})
}

// An incomplete handshake is reported for a listener whose queue has room.
func TestSocketsHalfOpen(t *testing.T) {
	prober, target := netlab.PairIn(t, 33)
	target.Listen("10.97.33.2:80", 5)
	prober.DropTCP() // so that no SYN-ACK arrives
	stop := keepProbing(prober, "10.97.33.2:80")
	defer stop()
	var out operation.Output
	testenv.Until(t, "a handshake that is not complete", 10*time.Second, func() bool {
		var err error
		out, _, err = run(t, Sockets(host()), map[string]string{"address": "10.97.33.2", "port": "80", "window": "0s"})
		return err == nil && out.Results["synReceived"] != "0"
	})
	wantResults(t, out, map[string]string{"states": `SYN_RECV [1-9]\d*, LISTEN 1$`, "queue": "^0$"})
}

// In the node's own namespace, a pod's user sees only the pod's sockets.
func TestSocketsOfAPodOnTheNodesNetwork(t *testing.T) {
	target := netlab.New(t)
	uid, _ := podOf(t, target)
	target.Serve("127.0.0.1:80", netlab.Echo)
	h := host()
	p, _, err := findPlace(h, operation.Values{"podUID": uid})
	if err != nil {
		t.Fatal(err)
	}
	p.node = true // pretend it is; the sockets belong to this process, which is not in the pod
	s, err := sockets(h, t.Context(), p, operation.Values{}, true)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.list) != 0 || s.hidden != 1 {
		t.Errorf("%d sockets, %d hidden", len(s.list), s.hidden)
	}
	if s, err = sockets(h, t.Context(), p, operation.Values{}, false); err != nil || len(s.list) != 1 {
		t.Errorf("not confined: %v", err)
	}
}

func TestNetSocketInode(t *testing.T) {
	for link, want := range map[string]uint32{"socket:[12]": 12, "socket:[x]": 0, "socket:[1": 0, "pipe:[1]": 0, "": 0} {
		if got, _ := socketInode(link); got != want {
			t.Errorf("%q: %d", link, got)
		}
	}
}
