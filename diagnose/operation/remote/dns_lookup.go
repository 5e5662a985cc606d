package remote

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/kernosis/kernosis/collector/netprobe"
	"github.com/kernosis/kernosis/diagnose/operation"
)

const resolvConf = netprobe.ResolvConf

func DNSLookup(h operation.Host) operation.Builtin {
	return operation.Builtin{
		Name: "dns-lookup", Doc: "Queries each of the node's name servers, or a given one, for a name, and reports each answer.",
		Effect: operation.Collect,
		Parameters: []operation.Parameter{
			{Name: "name", Kind: operation.String, Required: true, Max: 254, Doc: "full name, search domains are not tried; for type PTR, an address"},
			{Name: "type", Kind: operation.Enum, Values: slices.Sorted(maps.Keys(dnsTypes())), Default: "A", Doc: "record type"},
			{Name: "server", Kind: operation.Address, Doc: "the name server; none: those in " + resolvConf},
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
		b, err := h.FS.ReadFile(resolvConf, 64<<10)
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
