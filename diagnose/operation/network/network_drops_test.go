package network

import (
	"errors"
	"testing"

	"github.com/kernosis/kernosis/collector/netlook"
	"github.com/kernosis/kernosis/vmtest/netlab"
)

func TestNetworkDrops(t *testing.T) {
	prober, target := netlab.PairIn(t, 33)
	target.Listen("10.97.33.2:80", 0)
	prober.Dial("10.97.33.2:80")
	stop := keepProbing(prober, "10.97.33.2:80")
	out, files := must(t, NetworkDrops(host()), map[string]string{"netns": inode(target), "window": "2s"})
	stop()
	wantResults(t, out, map[string]string{"counters": `TcpExt.ListenDrops \+[1-9].*`, "softnetDropped": `^\d+$`, "softnetSqueezed": `^\d+$`})
	if text := files.Read(t, "network-drops.txt"); !matches(text, `(?m)^  TcpExt.ListenOverflows \+[1-9]`) ||
		!matches(text, `(?m)^  Tcp.InSegs \+[1-9]`) || !matches(text, `(?m)^  TcpExt.ListenDrops [1-9]`) {
		t.Errorf("artifact\n%s", text)
	}
	if _, err := readConntrack(host(), &place{inode: target.Inode, pid: holder(target)}); err == nil {
		wantResults(t, out, map[string]string{"conntrack": `^\d+ of [1-9]\d* connections tracked`, "conntrackDropped": "^0$"})
	} else {
		wantResults(t, out, map[string]string{"conntrack": "^$", "note": "not tracked here"})
	}
	// There are no losses.
	out, _ = must(t, NetworkDrops(host()), map[string]string{"netns": inode(prober), "window": "0s"})
	wantResults(t, out, map[string]string{"counters": "^$", "linkDrops": "^$"})
}

func TestCheckConntrackFull(t *testing.T) {
	node, pod := netlab.PairIn(t, 33)
	h := labHost(t, node, pod)
	p, err := findNode(h)
	if err != nil {
		t.Fatal(err)
	}
	check := CheckConntrackFull(h)
	in := map[string]string{"netns": inode(pod), "window": "0s"}
	if _, err := readConntrack(h, p); errors.Is(err, netlook.ErrNoConntrack) {
		fail(t, check, in, "not tracked here")
		t.Skip("this kernel does not track connections")
	} else if err != nil {
		t.Fatal(err)
	}
	refute(t, check, in, "ConntrackNotFull", `network namespace `+inode(pod)+` .*: 0 of [1-9]\d* connections tracked \(0 %\), 0 packets dropped .*; network namespace `+inode(node))
	// Every table reaches this threshold.
	in["threshold"] = "0"
	out := confirm(t, check, in, "ConntrackFull", `network namespace `+inode(pod))
	wantResults(t, out, map[string]string{"conntrack": "connections tracked", "conntrackDropped": "^0$"})
}

func TestNetConntrackFull(t *testing.T) {
	for _, c := range []struct {
		count, limit, drop, insertFailed uint64
		full                             bool
	}{
		{95, 100, 0, 0, true},
		{94, 100, 0, 0, false},
		{1, 100, 3, 0, true},
		{1, 100, 3, 3, false}, // connections that raced for one entry
		{1, 100, 3, 2, true},
		{1, 100, 2, 3, false},
		{5, 0, 0, 0, false},
		{100, 100, 0, 0, true},
	} {
		was := conntrack{drop: 70, insertFailed: 20}
		now := conntrack{Conntrack: netlook.Conntrack{Count: c.count, Max: c.limit}, drop: was.drop + c.drop, insertFailed: was.insertFailed + c.insertFailed}
		if grew := now.since(&was); now.full(95, grew.noPlace()) != c.full {
			t.Errorf("%+v", c)
		}
	}
}

func TestNetReportsLoss(t *testing.T) {
	for name, want := range map[string]bool{
		"TcpExt.ListenDrops": true, "TcpExt.TCPTimeouts": true, "Tcp.RetransSegs": true, "Ip.OutNoRoutes": true, "Udp.RcvbufErrors": true,
		"Ip6.InDiscards": true, "TcpExt.PruneCalled": true, "Tcp.InSegs": false, "Ip.InReceives": false, "TcpExt.TCPPureAcks": false,
	} {
		if reportsLoss(name) != want {
			t.Error(name)
		}
	}
}
