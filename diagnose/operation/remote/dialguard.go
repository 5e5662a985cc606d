package remote

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"
)

// dialTimeout is the timeout of one connection. Two of three SYNs are sent within it.
const dialTimeout = 5 * time.Second

// guardedDialer returns a dialer that refuses addresses that no operation needs. It checks the
// address that is actually connected to, so that DNS names can't bypass it.
func guardedDialer(linkLocal bool) *net.Dialer {
	d := &net.Dialer{Timeout: dialTimeout}
	d.ControlContext = func(_ context.Context, _, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		if why := refusedAddress(at.Addr(), linkLocal); why != "" {
			return fmt.Errorf("refused: %s", why)
		}
		return nil
	}
	return d
}

// refusedAddress returns why a must not be connected to; "" if it may be. Clouds provide the node's
// credentials at link-local addresses and some others.
func refusedAddress(a netip.Addr, linkLocal bool) string {
	a = a.Unmap().WithZone("")
	if nat64 := a.As16(); a.Is6() && [12]byte(nat64[:12]) == [12]byte{0, 0x64, 0xff, 0x9b} {
		a = netip.AddrFrom4([4]byte(nat64[12:])) // the address that a translator connects to (RFC 6052)
	}
	if !a.IsValid() || a.IsUnspecified() {
		return a.String() + " is not the address of a host"
	}
	if a.IsMulticast() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		return a.String() + " is not a unicast address"
	}
	if linkLocal {
		return ""
	}
	if a.IsLinkLocalUnicast() {
		return a.String() + " is link-local, like cloud metadata services"
	}
	metadata := []netip.Addr{
		netip.AddrFrom4([4]byte{100, 100, 100, 200}),                                       // Alibaba Cloud
		netip.AddrFrom4([4]byte{192, 0, 0, 192}),                                           // Oracle Cloud
		netip.AddrFrom4([4]byte{168, 63, 129, 16}),                                         // Azure's wire server
		netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x00, 2: 0x0e, 3: 0xc2, 14: 0x02, 15: 0x54}), // Amazon EC2
	}
	if slices.Contains(metadata, a) {
		return a.String() + " is a metadata service"
	}
	return ""
}
