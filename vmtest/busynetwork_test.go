package vmtest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/vmtest/agenttest"
	"github.com/kernosis/kernosis/vmtest/netlab"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// dialogue is one kind of successful connection.
type dialogue struct {
	what   string
	server func(net.Conn)
	client func(*net.TCPConn) error
}

const (
	request = "ping"
	// answer is longer than the data in flight at any time.
	answer = 64 << 10
)

func dialogues() []dialogue {
	reply := func(c net.Conn) { _, _ = c.Write(make([]byte, answer)) }
	return []dialogue{
		{"connections that the client closed", netlab.Echo, func(c *net.TCPConn) error {
			if _, err := c.Write([]byte(request)); err != nil {
				return err
			}
			_, err := io.ReadFull(c, make([]byte, len(request)))
			return err
		}},
		{"connections that the server closed", func(c net.Conn) {
			if _, err := io.ReadFull(c, make([]byte, len(request))); err == nil {
				reply(c)
			}
		}, func(c *net.TCPConn) error {
			if _, err := c.Write([]byte(request)); err != nil {
				return err
			}
			return readAnswer(c)
		}},
		{"half-closed connections", func(c net.Conn) {
			if _, err := io.ReadAll(c); err == nil {
				reply(c)
			}
		}, func(c *net.TCPConn) error {
			if _, err := c.Write([]byte(request)); err != nil {
				return err
			}
			if err := c.CloseWrite(); err != nil {
				return err
			}
			return readAnswer(c)
		}},
		// Like kubelet's TCP probes.
		{"connections without a request", netlab.Echo, func(c *net.TCPConn) error { return c.SetLinger(1) }},
		// Like kubelet's HTTP probes of long pages: the client's kernel resets the connection.
		{"connections whose answer was not read to its end", func(c net.Conn) {
			if _, err := io.ReadFull(c, make([]byte, len(request))); err == nil {
				reply(c)
			}
		}, func(c *net.TCPConn) error {
			if _, err := c.Write([]byte(request)); err != nil {
				return err
			}
			_, err := io.ReadFull(c, make([]byte, 10<<10))
			return err
		}},
	}
}

func readAnswer(c io.Reader) error {
	got, err := io.ReadAll(c)
	if err == nil && len(got) != answer {
		return fmt.Errorf("%d bytes came of %d", len(got), answer)
	}
	return err
}

// busyNetwork generates connections between two network namespaces, all of them to targets.
type busyNetwork struct {
	t              *testing.T
	agent          *agenttest.Agent
	prober, target *netlab.Net
	all            []*load
	closed         netip.AddrPort // address where nothing listens
}

func newBusyNetwork(t *testing.T, a *agenttest.Agent) *busyNetwork {
	t.Helper()
	n := &busyNetwork{t: t, agent: a}
	n.prober, n.target = netlab.PairIn(t, 31)
	var targets strings.Builder
	targets.WriteString("targets:\n")
	var at netip.AddrPort
	for _, family := range []sockFamily{ipv4(31), ipv6(31)} {
		for i, d := range dialogues() {
			at = netip.AddrPortFrom(netip.MustParseAddr(family.gateway), uint16(80+i))
			n.target.Serve(at.String(), d.server)
			fmt.Fprintf(&targets, "- {name: busy-%d%s, address: %q, port: %d, netns: %d}\n", i, family.suffix, at.Addr(), at.Port(), n.prober.Inode)
			n.all = append(n.all, n.load(d, at, family.suffix))
		}
	}
	n.closed = netip.AddrPortFrom(at.Addr(), 79)
	fmt.Fprintf(&targets, "- {name: closed, address: %q, port: %d, netns: %d}\n", n.closed.Addr(), n.closed.Port(), n.prober.Inode)
	file := filepath.Join(a.Targets, "busy.yaml")
	if err := os.WriteFile(file, []byte(targets.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the targets are watched", time.Minute, func() bool {
		watched, err := bpf.WatchedBy(a.Pins, n.prober.Inode, n.closed)
		if err != nil {
			t.Fatal(err)
		}
		return watched
	})
	return n
}

func (n *busyNetwork) loads() []*load { return n.all }

func (n *busyNetwork) load(d dialogue, at netip.AddrPort, suffix string) *load {
	const batch = 5 // because entering the namespace costs more than a connection
	return &load{what: d.what + suffix, pause: 500 * time.Millisecond, step: func() (int, error) {
		return batch, n.prober.Do(func() error {
			for range batch {
				if err := d.talk(at); err != nil {
					return err
				}
			}
			return nil
		})
	}}
}

func (d dialogue) talk(to netip.AddrPort) error {
	c, err := net.DialTimeout("tcp", to.String(), testenv.Within(sockLimit))
	if err != nil {
		return err
	}
	tcp := c.(*net.TCPConn)
	return errors.Join(tcp.SetDeadline(time.Now().Add(testenv.Within(sockLimit))), d.client(tcp), tcp.Close())
}

// breakOne connects to an address where nothing listens, and waits until that is reported.
func (n *busyNetwork) breakOne() {
	n.t.Helper()
	if err := n.prober.Probe(n.closed.String(), sockLimit, ""); err == nil {
		n.t.Fatal("something listens where nothing should")
	}
	n.agent.Wait("failed connection", sockLimit, func(entries []journal.Entry) bool {
		return slices.ContainsFunc(agenttest.Events(entries, event.SockFail), func(ev *event.Event) bool {
			return ev.SockFail.Target == "closed" && ev.SockFail.Verdict == event.VerdictRefused
		})
	})
}
