package remote

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/netprobe"
	"github.com/kernosis/kernosis/diagnose/operation"
)

func DNSLookup(h operation.Host) operation.Builtin {
	return operation.Builtin{
		Name: "dns-lookup", Doc: "Queries each of the node's name servers, or a given one, for a name, and reports each answer.",
		Effect: operation.Collect,
		Parameters: []operation.Parameter{
			{Name: "name", Kind: operation.String, Required: true, Max: 254, Doc: "full name, search domains are not tried; for type PTR, an address"},
			{Name: "type", Kind: operation.Enum, Values: slices.Sorted(maps.Keys(dnsTypes())), Default: "A", Doc: "record type"},
			{Name: "server", Kind: operation.Address, Doc: "the name server; none: those in " + netprobe.ResolvConf},
			{Name: "serverPort", Kind: operation.Integer, Default: "53", Min: 1, Max: 65535, Doc: "port of the name servers"},
			{Name: "timeout", Kind: operation.Duration, Default: "2s", Min: int64(10 * time.Millisecond), Max: int64(30 * time.Second), Doc: "how long to wait for each answer"},
			{Name: "tries", Kind: operation.Integer, Default: "2", Min: 1, Max: 5, Doc: "queries to a server that does not answer"},
		},
		Results: []operation.Result{
			{Name: "server", Doc: "first server that answered; the results below are from its answer"},
			{Name: "rcode", Doc: "NOERROR, NXDOMAIN, SERVFAIL, REFUSED …"},
			{Name: "authoritative", Doc: "true: the server has the zone itself"},
			{Name: "answers", Doc: "records, separated by ; ; empty: none of this type"},
			{Name: "addresses", Doc: "their addresses, separated by commas"},
			{Name: "ttl", Doc: "shortest TTL of the records in seconds"},
			{Name: "latency", Doc: "time from query to answer"},
			{Name: "transport", Doc: "udp, or tcp if the answer was too long"},
			{Name: "servers", Doc: "answer of each server, separated by ;"},
		},
		Run: func(ctx context.Context, call *operation.Call) (operation.Output, error) {
			return dnsLookup(ctx, h, call)
		},
	}
}

func dnsLookup(ctx context.Context, h operation.Host, call *operation.Call) (operation.Output, error) {
	p := call.Parameters
	kind := dnsTypes()[p["type"]]
	name, err := netprobe.Name(p["name"], kind)
	if err != nil {
		return operation.Output{}, err
	}
	servers := []netip.Addr{p.Addr("server")}
	if p["server"] == "" {
		b, err := h.FS.ReadFile(netprobe.ResolvConf, 64<<10)
		if err != nil {
			return operation.Output{}, fmt.Errorf("name servers of the node: %w", err)
		}
		servers = netprobe.NameServers(string(b))
	}
	q := dnsmessage.Question{Name: name, Type: kind, Class: dnsmessage.ClassINET}
	var first *dnsAnswer
	reported := make([]string, 0, len(servers))
	for _, s := range servers {
		a := askDNS(ctx, netip.AddrPortFrom(s, uint16(p.Int("serverPort"))), q, p.Duration("timeout"), int(p.Int("tries")))
		if ctx.Err() != nil {
			return operation.Output{}, fmt.Errorf("lookup of %s: %s: %w", name, strings.Join(append(reported, a.server.String()), "; "), ctx.Err())
		}
		reported = append(reported, a.String())
		if a.err == nil && first == nil {
			first = &a
		}
	}
	all := strings.Join(reported, "; ")
	if first == nil {
		return operation.Output{}, errors.New("no name server answers: " + all)
	}
	transport := "udp"
	if first.tcp {
		transport = "tcp"
	}
	return operation.Output{Results: map[string]string{
		"server": first.server.String(), "rcode": first.rcode, "authoritative": strconv.FormatBool(first.authoritative),
		"answers": strings.Join(first.records, "; "), "addresses": strings.Join(first.addresses, ","), "ttl": strconv.FormatUint(uint64(first.ttl), 10),
		"latency": first.latency.Round(10 * time.Microsecond).String(), "transport": transport, "servers": all,
	}}, nil
}

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
