package network

import (
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/vmtest/netlab"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// setLink sets the device of a pair up or down.
func setLink(t *testing.T, n *netlab.Net, name string, up bool) {
	t.Helper()
	n.In(func() error {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if up {
			return netlink.LinkSetUp(l)
		}
		return netlink.LinkSetDown(l)
	})
}

func TestLinks(t *testing.T) {
	prober, target := netlab.PairIn(t, 33)
	target.In(func() error {
		return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}})
	})
	links, check := Links(host()), CheckLinkDown(host())
	in := func(n *netlab.Net, more ...string) map[string]string {
		p := map[string]string{"netns": inode(n)}
		for i := 0; i < len(more); i += 2 {
			p[more[i]] = more[i+1]
		}
		return p
	}
	target.DropTCP()
	target.Listen("10.97.33.2:80", 1)
	stop := keepProbing(prober, "10.97.33.2:80")
	out, files := must(t, links, in(target, "window", "1s"))
	stop()
	wantResults(t, out, map[string]string{
		"linkCount": "^[0-9]+$", "faults": "br0 bridge administratively down", "links": "probe0 veth up mtu 1500", "linkDrops": "probe0: .*[1-9][0-9]* dropped by the qdisc",
	})
	if text := files.Read(t, "links.txt"); !matches(text, `(?m)^probe0 veth up mtu 1500 +[1-9]\d* `) || !matches(text, "during 1s: probe0: ") {
		t.Errorf("artifact\n%s", text)
	}
	out, _ = must(t, links, in(target, "window", "0s", "link", "probe0"))
	wantResults(t, out, map[string]string{"linkCount": "^1$", "faults": "^$"})
	fail(t, links, in(target, "window", "0s", "link", "eth7"), `has no device "eth7"`)

	refute(t, check, in(target), "LinksUp", "that should carry packets: probe0 veth up mtu 1500$")
	refute(t, check, in(prober, "address", "10.97.33.2"), "LinksUp", "used for sending: probe0 veth up")
	confirm(t, check, in(target, "link", "br0"), "LinkDown", "br0 is administratively down")
	fail(t, check, in(target, "link", "eth7"), `has no device "eth7"`)

	setLink(t, target, "probe0", false)
	confirm(t, check, in(target), "LinkDown", "probe0 is administratively down")
	confirm(t, check, in(target, "address", "10.97.33.1"), "LinkDown", "probe0 is administratively down; healthy devices that should carry packets, as there is no route to 10.97.33.1")
	var got operation.Output
	testenv.Until(t, "the other end to lose its carrier", 10*time.Second, func() bool {
		var err error
		got, _, err = run(t, check, in(prober))
		return err == nil
	})
	if !matches(got.Verdict.Message, `probe0 is up, but without carrier; `) {
		t.Error(got.Verdict.Message)
	}
	wantResults(t, got, map[string]string{"link": "^probe0$"})
}

// A device that is missing in an interrupted list may be down.
func TestLinksThatChange(t *testing.T) {
	for interrupted, want := range map[int]bool{0: true, 4: true, 5: false} {
		asked := 0
		list, whole, err := undisturbed(func() ([]int, error) {
			if asked++; asked <= interrupted {
				return []int{1}, netlink.ErrDumpInterrupted
			}
			return []int{1, 2}, nil
		})
		if err != nil || whole != want || len(list) == 2 != want || asked > 5 {
			t.Errorf("interrupted %d times: %v, whole %v, %v", interrupted, list, whole, err)
		}
	}
	if _, whole, err := undisturbed(func() (int, error) { return 0, io.EOF }); !errors.Is(err, io.EOF) || whole {
		t.Errorf("whole %v, %v", whole, err)
	}

	up, down := link{name: "eth0", kind: "device", up: true, carrier: true}, link{name: "eth1", kind: "device"}
	judge := func(whole bool, looked ...link) (*operation.Verdict, error) {
		return linkVerdict(&place{}, looked, whole, "that should carry packets", newReport(nil))
	}
	var no *operation.Refuted
	if _, err := judge(true, up); !errors.As(err, &no) || no.Reason != "LinksUp" {
		t.Errorf("a whole list: %v", err)
	}
	if _, err := judge(false, up); err == nil || errors.As(err, &no) {
		t.Errorf("an interrupted list: %v", err)
	}
	if v, err := judge(false, up, down); err != nil || v.Reason != "LinkDown" {
		t.Errorf("one is down: %v, %v", v, err)
	}
	for whole, want := range map[bool]string{true: `has no device "eth7"$`, false: `changed each time they were listed: "eth7" may be missing$`} {
		if err := noDevice(&place{}, "eth7", whole); !matches(err.Error(), want) {
			t.Errorf("a device that is not in the list, whole %v: %v", whole, err)
		}
	}
}

// A list that may lack something says so.
func TestNoteOfAListThatChanges(t *testing.T) {
	n := netlab.New(t)
	view, err := open(host(), &place{inode: n.Inode, pid: holder(n)})
	if err != nil {
		t.Fatal(err)
	}
	defer view.Close()
	r := newReport(nil)
	list, whole, err := listed(view, r, "cats", func(*netlink.Handle) ([]int, error) { return []int{1}, netlink.ErrDumpInterrupted })
	if err != nil || whole || len(list) != 1 || !slices.Equal(r.Notes, []string{"cats changed meanwhile: some may be missing"}) {
		t.Errorf("%v, whole %v, %v, notes %q", list, whole, err, r.Notes)
	}
}

// What a qdisc dropped before it could be read is not dropped during the window.
func TestLinksGrew(t *testing.T) {
	before, after := []link{{index: 2, name: "eth0", qdiscDrops: 3, qdiscsKnown: true}}, []link{{index: 2, name: "eth0", qdiscDrops: 7, qdiscsKnown: true}}
	if got := linksGrew(before, after); !slices.Equal(got, []string{"eth0: 4 dropped by the qdisc"}) {
		t.Errorf("%q", got)
	}
	before[0].qdiscDrops, before[0].qdiscsKnown = 0, false
	if got := linksGrew(before, after); len(got) > 0 {
		t.Errorf("%q, though the first counters are not known", got)
	}
}

// A fault of a member that the bond detects counts for the member.
func TestLinkFaults(t *testing.T) {
	links := []link{
		{index: 1, name: "lo", kind: "device", up: true, carrier: true},
		{index: 2, name: "bond0", kind: "bond", up: true, carrier: true},
		{index: 3, name: "eth0", kind: "device", up: true, carrier: true, masterIndex: 2, master: "bond0", bondSlave: "BACKUP", mii: "DOWN"},
		{index: 4, name: "eth1", kind: "device", up: true, carrier: true, oper: "lower-layer-down"},
		{index: 5, name: "bond0.7", kind: "vlan", parent: 2, up: true, carrier: true},
		{index: 6, name: "tunl0", kind: "ipip"},
		{index: 7, name: "veth0", kind: "veth", parent: 3, up: true, carrier: true},
	}
	for i, want := range []string{"", "", "up, but its bond bond0 reports its link as DOWN", "up, but its state is lower-layer-down", "", "administratively down", ""} {
		if got := links[i].fault(); got != want {
			t.Errorf("%s: %q, want %q", links[i].name, got, want)
		}
	}
	if got := links[2].String(); got != "eth0 device up, but its bond bond0 reports its link as DOWN mtu 0 of bond0 (BACKUP, link DOWN)" {
		t.Error(got)
	}
	if !carries(links, &links[2], "bond0") || !carries(links, &links[1], "bond0.7") || carries(links, &links[3], "bond0") || carries(links, &links[2], "veth0") {
		t.Error("what carries what")
	}
	if links[5].shouldCarry() || links[0].shouldCarry() || !links[3].shouldCarry() {
		t.Error("which should carry packets")
	}
}
