package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/netprobe"
)

// dnsTypes returns the record types that can be queried.
func dnsTypes() map[string]dnsmessage.Type {
	return map[string]dnsmessage.Type{
		"A": dnsmessage.TypeA, "AAAA": dnsmessage.TypeAAAA, "CNAME": dnsmessage.TypeCNAME, "MX": dnsmessage.TypeMX, "NS": dnsmessage.TypeNS,
		"PTR": dnsmessage.TypePTR, "SOA": dnsmessage.TypeSOA, "SRV": dnsmessage.TypeSRV, "TXT": dnsmessage.TypeTXT,
	}
}

// dnsAnswer is the answer of one server.
type dnsAnswer struct {
	server        netip.AddrPort
	rcode         string
	authoritative bool
	tcp           bool
	records       []string // as in a zone file, without class
	addresses     []string
	ttl           uint32 // the lowest; 0 without records
	latency       time.Duration
	err           error
}

func (a *dnsAnswer) String() string {
	if a.err != nil {
		return fmt.Sprintf("%s: %s", a.server, display.Safe(a.err.Error(), 128))
	}
	return fmt.Sprintf("%s: %s in %s", a.server, a.rcode, a.latency.Round(10*time.Microsecond))
}

// askDNS queries one server: by UDP, up to tries times while there is no answer in time, and by TCP
// if the answer is truncated.
func askDNS(ctx context.Context, server netip.AddrPort, q dnsmessage.Question, timeout time.Duration, tries int) dnsAnswer {
	a := dnsAnswer{server: server}
	for range tries {
		began := time.Now()
		var p dnsmessage.Parser
		var h dnsmessage.Header
		p, h, a.err = netprobe.Exchange(ctx, guardedDialer(true).DialContext, "udp", server, q, timeout)
		if a.err == nil && h.Truncated {
			a.tcp = true
			p, h, a.err = netprobe.Exchange(ctx, guardedDialer(true).DialContext, "tcp", server, q, timeout)
		}
		if a.err == nil {
			a.latency, a.authoritative = time.Since(began), h.Authoritative
			a.rcode = netprobe.RCode(h.RCode)
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

// maxRecords bounds the records of an answer that are reported.
const maxRecords = 64

// read reads the records.
func (a *dnsAnswer) read(p *dnsmessage.Parser) error {
	for len(a.records) < maxRecords {
		r, err := p.Answer()
		if errors.Is(err, dnsmessage.ErrSectionDone) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("invalid answer: %w", err)
		}
		if r.Header.Class != dnsmessage.ClassINET {
			continue
		}
		if len(a.records) == 0 || r.Header.TTL < a.ttl {
			a.ttl = r.Header.TTL
		}
		kind, data := recordText(r.Body)
		a.records = append(a.records, display.Safe(fmt.Sprintf("%s %d %s %s", r.Header.Name, r.Header.TTL, kind, data), 512))
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
