package inject

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// A probe's two ends live in network namespaces of their own, so that no
// address here can be one of the host's.
func proberPrefix() netip.Prefix { return netip.MustParsePrefix("10.9.0.1/24") }
func targetPrefix() netip.Prefix { return netip.MustParsePrefix("10.9.0.2/24") }

// namespace is the network namespace a child process was started in. It ends when the process, this
// handle and the link in it are gone.
type namespace struct {
	fd    netns.NsHandle
	inode uint32
	nl    *netlink.Handle
	link  string       // the link to the other namespace
	addr  netip.Prefix // for the link
}

func openNamespace(pid int, link string, addr netip.Prefix) (*namespace, error) {
	path := "/proc/" + strconv.Itoa(pid) + "/ns/net"
	fd, err := netns.GetFromPath(path)
	if err != nil {
		return nil, fmt.Errorf("open network namespace %s: %w", path, err)
	}
	n := &namespace{fd: fd, link: link, addr: addr}
	var st unix.Stat_t
	if err := unix.Fstat(int(fd), &st); err != nil {
		return nil, errors.Join(fmt.Errorf("stat network namespace %s: %w", path, err), n.close())
	}
	n.inode = uint32(st.Ino) // a proc inode number: always fits
	if n.nl, err = netlink.NewHandleAt(fd, unix.NETLINK_ROUTE); err != nil {
		return nil, errors.Join(fmt.Errorf("open rtnetlink in %s: %w", path, err), n.close())
	}
	return n, nil
}

func (n *namespace) close() error {
	if n == nil || !n.fd.IsOpen() {
		return nil
	}
	if n.nl != nil {
		n.nl.Close()
	}
	return n.fd.Close()
}

// connectNamespaces connects the namespaces with a veth pair. Both ends are up; only the
// prober's has an address. The pair is deleted with either namespace.
func connectNamespaces(ctx context.Context, prober, target *namespace) error {
	// Created inside the namespaces: the host never sees it.
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: prober.link}, PeerName: target.link, PeerNamespace: netlink.NsFd(target.fd)}
	err := prober.nl.LinkAdd(veth)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return &Refused{Reason: "this kernel has no veth devices"}
	} else if err != nil {
		return fmt.Errorf("create veth pair: %w", err)
	}
	for _, n := range []*namespace{prober, target} {
		for _, link := range []string{"lo", n.link} {
			if err := n.change(link, "set the state to up", n.nl.LinkSetUp); err != nil {
				return err
			}
		}
	}
	if err := errors.Join(prober.carries(ctx), target.carries(ctx)); err != nil {
		return err
	}
	return prober.addAddress()
}

// carries waits until the link passes packets: the kernel may activate its queue up to a
// second after the carrier is up, and drops packets until then.
func (n *namespace) carries(ctx context.Context) error {
	const within = 10 * time.Second
	return waitFor(ctx, within, n.link+" to pass packets", func() (bool, error) {
		link, err := n.nl.LinkByName(n.link)
		return err == nil && link.Attrs().OperState == netlink.OperUp, err
	})
}

// change calls f with a link; what describes the change in errors.
func (n *namespace) change(link, what string, f func(netlink.Link) error) error {
	l, err := n.nl.LinkByName(link)
	if err == nil {
		err = f(l)
	}
	if err != nil {
		return fmt.Errorf("%s on %s: %w", what, link, err)
	}
	return nil
}

func (n *namespace) addAddress() error {
	return n.change(n.link, "add address "+n.addr.String(), func(l netlink.Link) error {
		return n.nl.AddrAdd(l, &netlink.Addr{IPNet: ipNet(n.addr)})
	})
}

// ghost adds or removes a permanent neighbour entry, which needs no ARP answer, for an address
// that nobody has.
func (n *namespace) ghost(do func(*netlink.Handle, *netlink.Neigh) error, addr netip.Addr) error {
	return n.change(n.link, "change neighbour "+addr.String(), func(l netlink.Link) error {
		return do(n.nl, &netlink.Neigh{
			LinkIndex: l.Attrs().Index, Family: netlink.FAMILY_V4, State: netlink.NUD_PERMANENT, IP: addr.AsSlice(),
			HardwareAddr: net.HardwareAddr{0x02, 0, 0, 0, 0xde, 0xad}, // locally administered, nobody's
		})
	})
}

// subnetRoute adds or removes the route to the link's own subnet.
func (n *namespace) subnetRoute(do func(*netlink.Handle, *netlink.Route) error) error {
	subnet := n.addr.Masked()
	return n.change(n.link, "change route "+subnet.String(), func(l netlink.Link) error {
		return do(n.nl, &netlink.Route{LinkIndex: l.Attrs().Index, Dst: ipNet(subnet), Scope: netlink.SCOPE_LINK})
	})
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
