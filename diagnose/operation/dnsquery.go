package operation

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

	"github.com/kernosis/kernosis/collector/event"
)

// ednsSize is what fits into a packet everywhere (DNS flag day 2020).
const ednsSize = 1232

// dnsTypes are the types of records that can be asked for.
func dnsTypes() []string {
	return []string{"A", "AAAA", "CNAME", "MX", "NS", "PTR", "SOA", "SRV", "TXT"}
}

func dnsType(name string) dnsmessage.Type {
	return map[string]dnsmessage.Type{
		"A": dnsmessage.TypeA, "AAAA": dnsmessage.TypeAAAA, "CNAME": dnsmessage.TypeCNAME, "MX": dnsmessage.TypeMX, "NS": dnsmessage.TypeNS,
		"PTR": dnsmessage.TypePTR, "SOA": dnsmessage.TypeSOA, "SRV": dnsmessage.TypeSRV, "TXT": dnsmessage.TypeTXT,
	}[name]
}

// dnsName makes a question's name. The name of an address for PTR is its reverse.
func dnsName(name string, kind dnsmessage.Type) (dnsmessage.Name, error) {
	if a, err := netip.ParseAddr(name); err == nil && kind == dnsmessage.TypePTR {
		name = reverseName(a)
	}
	if !strings.HasSuffix(name, ".") {
		name += "."
	}
	for label := range strings.SplitSeq(strings.TrimSuffix(name, "."), ".") {
		if (label == "" && name != ".") || len(label) > 63 {
			return dnsmessage.Name{}, fmt.Errorf("%s is no DNS name", quoted(name))
		}
	}
	n, err := dnsmessage.NewName(name)
	if err != nil || len(name) > 254 {
		return n, fmt.Errorf("%s is no DNS name", quoted(name))
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

// dnsAnswer is what one server says.
type dnsAnswer struct {
	server        netip.AddrPort
	rcode         string
	authoritative bool
	tcp           bool
	records       []string // as in a zone file, without class
	addresses     []string
	ttl           uint32 // the lowest; of no record 0
	latency       time.Duration
	err           error
}

func (a *dnsAnswer) String() string {
	if a.err != nil {
		return fmt.Sprintf("%s: %s", a.server, event.SafeText(a.err.Error(), 128))
	}
	return fmt.Sprintf("%s: %s in %s", a.server, a.rcode, a.latency.Round(10*time.Microsecond))
}

// askDNS asks one server: by UDP, again for each of tries that has no answer in time,
// and by TCP where the answer doesn't fit.
func askDNS(ctx context.Context, server netip.AddrPort, q dnsmessage.Question, timeout time.Duration, tries int) dnsAnswer {
	a := dnsAnswer{server: server}
	for range tries {
		began := time.Now()
		var p dnsmessage.Parser
		var h dnsmessage.Header
		p, h, a.err = exchangeDNS(ctx, "udp", server, q, timeout)
		if a.err == nil && h.Truncated {
			a.tcp = true
			p, h, a.err = exchangeDNS(ctx, "tcp", server, q, timeout)
		}
		if a.err == nil {
			a.latency, a.authoritative = time.Since(began), h.Authoritative
			a.rcode = rcodeName(h.RCode)
			a.err = a.read(&p)
			return a
		}
		if n, ok := errors.AsType[net.Error](a.err); !ok || !n.Timeout() || ctx.Err() != nil {
			break
		}
	}
	if n, ok := errors.AsType[net.Error](a.err); ok && n.Timeout() {
		a.err = fmt.Errorf("no answer to %d queries of %s each", tries, timeout)
	} else if op, ok := errors.AsType[*net.OpError](a.err); ok {
		a.err = op.Err
	}
	return a
}

// exchangeDNS sends a question and returns a parser that is behind the questions of the
// answer. What doesn't answer this question is left out.
func exchangeDNS(ctx context.Context, network string, server netip.AddrPort, q dnsmessage.Question, timeout time.Duration) (dnsmessage.Parser, dnsmessage.Header, error) {
	var none dnsmessage.Parser
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := guardedDialer(true).DialContext(ctx, network, server.String())
	if err != nil {
		return none, dnsmessage.Header{}, err
	}
	defer conn.Close()
	// A deadline of ctx that comes with a cancellation ends a Read at once, too.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	var id [2]byte
	_, _ = rand.Read(id[:]) // it never fails
	query, err := packQuery(binary.BigEndian.Uint16(id[:]), q)
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
		n, err := readDNS(conn, network, buf)
		if err != nil {
			return none, dnsmessage.Header{}, err
		}
		var p dnsmessage.Parser
		h, err := p.Start(buf[:n])
		if err == nil && h.Response && h.ID == binary.BigEndian.Uint16(id[:]) && answers(&p, q) {
			return p, h, nil
		}
		if network == "tcp" {
			return none, h, errors.New("another answer than to the question")
		}
	}
}

func packQuery(id uint16, q dnsmessage.Question) ([]byte, error) {
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: id, RecursionDesired: true})
	var opt dnsmessage.ResourceHeader
	err := errors.Join(b.StartQuestions(), b.Question(q), b.StartAdditionals(), opt.SetEDNS0(ednsSize, dnsmessage.RCodeSuccess, false),
		b.OPTResource(opt, dnsmessage.OPTResource{}))
	if err != nil {
		return nil, err
	}
	return b.Finish()
}

func readDNS(conn net.Conn, network string, buf []byte) (int, error) {
	if network != "tcp" {
		return conn.Read(buf)
	}
	if _, err := io.ReadFull(conn, buf[:2]); err != nil {
		return 0, err
	}
	return io.ReadFull(conn, buf[:binary.BigEndian.Uint16(buf)])
}

// answers tells whether the questions of an answer are the one that was asked. A server
// that can't read the question may leave it out.
func answers(p *dnsmessage.Parser, q dnsmessage.Question) bool {
	all, err := p.AllQuestions()
	return err == nil && (len(all) == 0 || len(all) == 1 && all[0].Type == q.Type && all[0].Class == q.Class &&
		strings.EqualFold(all[0].Name.String(), q.Name.String()))
}

// maxRecords bounds the records of an answer that are told.
const maxRecords = 64

// read takes the records.
func (a *dnsAnswer) read(p *dnsmessage.Parser) error {
	for len(a.records) < maxRecords {
		r, err := p.Answer()
		if errors.Is(err, dnsmessage.ErrSectionDone) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("broken answer: %w", err)
		}
		if r.Header.Class != dnsmessage.ClassINET {
			continue
		}
		if len(a.records) == 0 || r.Header.TTL < a.ttl {
			a.ttl = r.Header.TTL
		}
		kind, data := recordText(r.Body)
		a.records = append(a.records, event.SafeText(fmt.Sprintf("%s %d %s %s", r.Header.Name, r.Header.TTL, kind, data), 512))
		if kind == "A" || kind == "AAAA" {
			a.addresses = append(a.addresses, data)
		}
	}
	return nil
}

func recordText(body dnsmessage.ResourceBody) (kind, data string) {
	switch r := body.(type) {
	case *dnsmessage.AResource:
		return "A", netip.AddrFrom4(r.A).String()
	case *dnsmessage.AAAAResource:
		return "AAAA", netip.AddrFrom16(r.AAAA).String()
	case *dnsmessage.CNAMEResource:
		return "CNAME", r.CNAME.String()
	case *dnsmessage.NSResource:
		return "NS", r.NS.String()
	case *dnsmessage.PTRResource:
		return "PTR", r.PTR.String()
	case *dnsmessage.MXResource:
		return "MX", fmt.Sprintf("%d %s", r.Pref, r.MX)
	case *dnsmessage.SRVResource:
		return "SRV", fmt.Sprintf("%d %d %d %s", r.Priority, r.Weight, r.Port, r.Target)
	case *dnsmessage.SOAResource:
		return "SOA", fmt.Sprintf("%s %s %d", r.NS, r.MBox, r.Serial)
	case *dnsmessage.TXTResource:
		texts := make([]string, len(r.TXT))
		for i, t := range r.TXT {
			texts[i] = strconv.Quote(t)
		}
		return "TXT", strings.Join(texts, " ")
	}
	return "other", ""
}

func rcodeName(c dnsmessage.RCode) string {
	names := []string{"NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED", "YXDOMAIN", "YXRRSET", "NXRRSET", "NOTAUTH", "NOTZONE"}
	if int(c) < len(names) {
		return names[c]
	}
	return "RCODE" + strconv.Itoa(int(c))
}
