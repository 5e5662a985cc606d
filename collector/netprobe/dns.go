package netprobe

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/kernosis/kernosis/collector/display"
)

// ednsSize is the UDP payload size that works everywhere (DNS flag day 2020).
const ednsSize = 1232

// Dial connects. The caller of Exchange decides what may be connected to.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Exchange sends a question and returns a parser positioned after the questions of the answer. It
// ignores answers to other questions.
func Exchange(ctx context.Context, dial Dial, network string, server netip.AddrPort, q dnsmessage.Question, timeout time.Duration) (dnsmessage.Parser, dnsmessage.Header, error) {
	var none dnsmessage.Parser
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := dial(ctx, network, server.String())
	if err != nil {
		return none, dnsmessage.Header{}, err
	}
	defer conn.Close()
	// When ctx ends, this also aborts a Read.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	var id [2]byte
	_, _ = rand.Read(id[:]) // it never fails
	query, err := pack(binary.BigEndian.Uint16(id[:]), q)
	if err != nil {
		return none, dnsmessage.Header{}, err
	}
	if network == "tcp" {
		query = append(binary.BigEndian.AppendUint16(nil, uint16(len(query))), query...)
	}
	if _, err := conn.Write(query); err != nil {
		return none, dnsmessage.Header{}, err
	}
	buf := make([]byte, 64<<10)
	for {
		n, err := read(conn, network, buf)
		if err != nil {
			return none, dnsmessage.Header{}, err
		}
		var p dnsmessage.Parser
		h, err := p.Start(buf[:n])
		if err == nil && h.Response && h.ID == binary.BigEndian.Uint16(id[:]) && Answers(&p, q) {
			return p, h, nil
		}
		if network == "tcp" {
			return none, h, errors.New("the answer is to another question")
		}
	}
}

func pack(id uint16, q dnsmessage.Question) ([]byte, error) {
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: id, RecursionDesired: true})
	var opt dnsmessage.ResourceHeader
	err := errors.Join(b.StartQuestions(), b.Question(q), b.StartAdditionals(), opt.SetEDNS0(ednsSize, dnsmessage.RCodeSuccess, false),
		b.OPTResource(opt, dnsmessage.OPTResource{}))
	if err != nil {
		return nil, err
	}
	return b.Finish()
}

func read(conn net.Conn, network string, buf []byte) (int, error) {
	if network != "tcp" {
		return conn.Read(buf)
	}
	if _, err := io.ReadFull(conn, buf[:2]); err != nil {
		return 0, err
	}
	return io.ReadFull(conn, buf[:binary.BigEndian.Uint16(buf)])
}

// Answers reports whether the question of an answer is q. A server that can't parse the question
// may omit it.
func Answers(p *dnsmessage.Parser, q dnsmessage.Question) bool {
	all, err := p.AllQuestions()
	return err == nil && (len(all) == 0 || len(all) == 1 && all[0].Type == q.Type && all[0].Class == q.Class &&
		strings.EqualFold(all[0].Name.String(), q.Name.String()))
}

// RCode returns the name of a response code.
func RCode(c dnsmessage.RCode) string {
	names := []string{"NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED", "YXDOMAIN", "YXRRSET", "NXRRSET", "NOTAUTH", "NOTZONE"}
	if int(c) < len(names) {
		return names[c]
	}
	return "RCODE" + strconv.Itoa(int(c))
}

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
