package netprobe

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/kernosis/kernosis/collector/display"
)

// Name returns name as a question's name. For PTR, an address is converted to its reverse name.
func Name(name string, kind dnsmessage.Type) (dnsmessage.Name, error) {
	if a, err := netip.ParseAddr(name); err == nil && kind == dnsmessage.TypePTR {
		name = reverseName(a)
	}
	if !strings.HasSuffix(name, ".") {
		name += "."
	}
	for label := range strings.SplitSeq(strings.TrimSuffix(name, "."), ".") {
		if (label == "" && name != ".") || len(label) > 63 {
			return dnsmessage.Name{}, fmt.Errorf("%s is not a DNS name", shown(name))
		}
	}
	n, err := dnsmessage.NewName(name)
	if err != nil || len(name) > 254 {
		return n, fmt.Errorf("%s is not a DNS name", shown(name))
	}
	return n, nil
}

func reverseName(a netip.Addr) string {
	var b strings.Builder
	if a = a.Unmap(); a.Is4() {
		q := a.As4()
		for i := 3; i >= 0; i-- {
			b.WriteString(strconv.Itoa(int(q[i])) + ".")
		}
		return b.String() + "in-addr.arpa."
	}
	q := a.As16()
	for i := 15; i >= 0; i-- {
		fmt.Fprintf(&b, "%x.%x.", q[i]&15, q[i]>>4)
	}
	return b.String() + "ip6.arpa."
}

func shown(name string) string { return `"` + display.Safe(name, 255) + `"` }

const (
	// ResolvConf is the file with a host's name servers.
	ResolvConf = "/etc/resolv.conf"
	// MaxServers is how many of them the C library uses.
	MaxServers = 3
)

// NameServers returns the name servers of a resolv.conf, as the C library does: the first three;
// if there are none, this host.
func NameServers(text string) []netip.Addr {
	var all []netip.Addr
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != "nameserver" || len(all) == MaxServers {
			continue
		}
		const longest = 15 // IFNAMSIZ without the NUL
		if a, err := netip.ParseAddr(fields[1]); err == nil && len(a.Zone()) <= longest && display.Safe(fields[1], len(fields[1])) == fields[1] {
			all = append(all, a)
		}
	}
	if len(all) == 0 {
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}
	}
	return all
}
