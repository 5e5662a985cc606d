package operation

import (
	"errors"
	"testing"

	"github.com/kernosis/kernosis/vmtest/netlab"
)

func TestNetworkDrops(t *testing.T) {
	prober, target := netlab.PairIn(t, 33)
	target.Listen("10.97.33.2:80", 0)
	prober.Dial("10.97.33.2:80")
	stop := netKeepProbing(prober, "10.97.33.2:80")
	out, files := netMust(t, NetworkDrops(netHost()), map[string]string{"netns": netInode(target), "window": "2s"})
	stop()
	netWant(t, out, map[string]string{"counters": `TcpExt.ListenDrops \+[1-9].*`, "softnetDropped": `^\d+$`, "softnetSqueezed": `^\d+$`})
	if text := files.read(t, "network-drops.txt"); !netMatches(text, `(?m)^  TcpExt.ListenOverflows \+[1-9]`) ||
		!netMatches(text, `(?m)^  Tcp.InSegs \+[1-9]`) || !netMatches(text, `(?m)^  TcpExt.ListenDrops [1-9]`) {
		t.Errorf("artifact\n%s", text)
	}
	if _, err := netHost().netConntrack(&netPlace{inode: target.Inode, pid: netHolder(target)}); err == nil {
		netWant(t, out, map[string]string{"conntrack": `^\d+ of [1-9]\d* connections tracked`, "conntrackDropped": "^0$"})
	} else {
		netWant(t, out, map[string]string{"conntrack": "^$", "note": "not tracked here"})
	}
	// Without losses.
	out, _ = netMust(t, NetworkDrops(netHost()), map[string]string{"netns": netInode(prober), "window": "0s"})
	netWant(t, out, map[string]string{"counters": "^$", "linkDrops": "^$"})
}

func TestCheckConntrackFull(t *testing.T) {
	node, pod := netlab.PairIn(t, 33)
	h := netLabHost(t, node, pod)
	p, err := h.netNode()
	if err != nil {
		t.Fatal(err)
	}
	check := CheckConntrackFull(h)
	in := map[string]string{"netns": netInode(pod), "window": "0s"}
	if _, err := h.netConntrack(&p); errors.Is(err, errNoConntrack) {
		netFail(t, check, in, "not tracked here")
		t.Skip("this kernel does not track connections")
	} else if err != nil {
		t.Fatal(err)
	}
	netRefute(t, check, in, "ConntrackNotFull", `network namespace `+netInode(pod)+` .*: 0 of [1-9]\d* connections tracked \(0 %\), 0 packets dropped .*; network namespace `+netInode(node))
	// The threshold that every table reaches.
	in["threshold"] = "0"
	out := netConfirm(t, check, in, "ConntrackFull", `network namespace `+netInode(pod))
	netWant(t, out, map[string]string{"conntrack": "connections tracked", "conntrackDropped": "^0$"})
}

func TestNetConntrackFull(t *testing.T) {
	for _, c := range []struct {
		count, limit, dropped uint64
		full                  bool
	}{{95, 100, 0, true}, {94, 100, 0, false}, {1, 100, 3, true}, {5, 0, 0, false}, {100, 100, 0, true}} {
		if got := (&netConntrack{count: c.count, limit: c.limit}).full(95, c.dropped); got != c.full {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestNetTellsLoss(t *testing.T) {
	for name, want := range map[string]bool{
		"TcpExt.ListenDrops": true, "TcpExt.TCPTimeouts": true, "Tcp.RetransSegs": true, "Ip.OutNoRoutes": true, "Udp.RcvbufErrors": true,
		"Ip6.InDiscards": true, "TcpExt.PruneCalled": true, "Tcp.InSegs": false, "Ip.InReceives": false, "TcpExt.TCPPureAcks": false,
	} {
		if netTellsLoss(name) != want {
			t.Error(name)
		}
	}
}
