package remote

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/netprobe"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/vmtest/operationtest"
)

// zone answers a query; nil packets are not sent.
type zone func(network string, q dnsmessage.Message) []dnsmessage.Message

// serveDNS starts a name server on a loopback address, for UDP and TCP.
func serveDNS(t *testing.T, address string, z zone) (port string) {
	t.Helper()
	ln, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	pc, err := net.ListenPacket("udp", ln.Addr().String())
	if err != nil {
		_ = ln.Close()
		t.Skipf("UDP port of the TCP one is taken: %v", err)
	}
	var all sync.WaitGroup
	t.Cleanup(func() { _, _ = ln.Close(), pc.Close(); all.Wait() })
	pack := func(network string, b []byte) (out [][]byte) {
		var q dnsmessage.Message
		if err := q.Unpack(b); err != nil {
			t.Errorf("question: %v", err)
			return nil
		}
		for _, m := range z(network, q) {
			b, err := m.Pack()
			if err != nil {
				t.Error(err)
			}
			out = append(out, b)
		}
		return out
	}
	all.Go(func() {
		buf := make([]byte, 4096)
		for {
			n, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			for _, b := range pack("udp", buf[:n]) {
				_, _ = pc.WriteTo(b, from)
			}
		}
	})
	all.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			b, _ := io.ReadAll(io.LimitReader(c, 2))
			if len(b) == 2 {
				b = make([]byte, binary.BigEndian.Uint16(b))
				_, _ = io.ReadFull(c, b)
				for _, b := range pack("tcp", b) {
					_, _ = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...))
				}
			}
			_ = c.Close()
		}
	})
	_, port, _ = net.SplitHostPort(ln.Addr().String())
	return port
}

// reply returns the answer to a query.
func reply(q dnsmessage.Message, code dnsmessage.RCode, bodies ...dnsmessage.ResourceBody) dnsmessage.Message {
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: q.ID, Response: true, RCode: code, Authoritative: true}, Questions: q.Questions}
	for i, b := range bodies {
		m.Answers = append(m.Answers, dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: q.Questions[0].Name, Class: dnsmessage.ClassINET, TTL: uint32(30 - i)}, Body: b})
	}
	return m
}

// someZone answers according to the first label of the name.
func someZone(network string, q dnsmessage.Message) []dnsmessage.Message {
	name := q.Questions[0].Name.String()
	target := dnsmessage.MustNewName("t.example.")
	one := func(code dnsmessage.RCode, bodies ...dnsmessage.ResourceBody) []dnsmessage.Message {
		return []dnsmessage.Message{reply(q, code, bodies...)}
	}
	label, _, _ := strings.Cut(name, ".")
	switch label {
	case "two":
		return one(0, &dnsmessage.AResource{A: [4]byte{10, 0, 0, 1}}, &dnsmessage.AResource{A: [4]byte{10, 0, 0, 2}})
	case "none":
		return one(dnsmessage.RCodeNameError)
	case "empty":
		return one(0)
	case "broken":
		return one(dnsmessage.RCodeServerFailure)
	case "all":
		return one(0, &dnsmessage.CNAMEResource{CNAME: target}, &dnsmessage.AAAAResource{AAAA: [16]byte{0xfd, 15: 1}}, &dnsmessage.MXResource{Pref: 5, MX: target},
			&dnsmessage.NSResource{NS: target}, &dnsmessage.SRVResource{Priority: 1, Weight: 2, Port: 3, Target: target},
			&dnsmessage.SOAResource{NS: target, MBox: dnsmessage.MustNewName("m.example."), Serial: 7}, &dnsmessage.TXTResource{TXT: []string{"a\x1b b", "\xff"}})
	case "big":
		m := reply(q, 0)
		if network == "udp" {
			m.Truncated = true
			return []dnsmessage.Message{m}
		}
		for i := range 100 {
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: target, Class: dnsmessage.ClassINET}, Body: &dnsmessage.AResource{A: [4]byte{10, 0, 1, byte(i)}}})
		}
		return []dnsmessage.Message{m}
	case "spoofed": // answers by others before the true one
		other, id := reply(q, dnsmessage.RCodeRefused), reply(q, dnsmessage.RCodeRefused)
		id.ID++
		other.Questions = []dnsmessage.Question{{Name: target, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}
		question := q
		return append([]dnsmessage.Message{id, other, question}, one(0, &dnsmessage.AResource{A: [4]byte{10, 0, 0, 9}})...)
	case "1":
		return one(0, &dnsmessage.PTRResource{PTR: target})
	}
	return nil
}

func TestDNSLookup(t *testing.T) {
	port := serveDNS(t, "127.0.0.1:0", someZone)
	b := DNSLookup(operation.Host{})
	for _, tt := range []struct {
		name, kind                        string
		rcode, answers, addresses, ttl, w string
	}{
		{"two.example", "A", "NOERROR", "two.example. 30 A 10.0.0.1; two.example. 29 A 10.0.0.2", "10.0.0.1,10.0.0.2", "29", "udp"},
		{"none.example.", "AAAA", "NXDOMAIN", "", "", "0", "udp"},
		{"empty.example", "A", "NOERROR", "", "", "0", "udp"},
		{"broken.example", "A", "SERVFAIL", "", "", "0", "udp"},
		{"spoofed.example", "A", "NOERROR", "spoofed.example. 30 A 10.0.0.9", "10.0.0.9", "30", "udp"},
		{"10.9.8.1", "PTR", "NOERROR", "1.8.9.10.in-addr.arpa. 30 PTR t.example.", "", "30", "udp"},
		{
			"all.example", "TXT", "NOERROR", "all.example. 30 CNAME t.example.; all.example. 29 AAAA fd00::1; all.example. 28 MX 5 t.example.; all.example. 27 NS t.example.; " +
				`all.example. 26 SRV 1 2 3 t.example.; all.example. 25 SOA t.example. m.example. 7; all.example. 24 TXT "a\x1b b" "\xff"`, "fd00::1", "24", "udp",
		},
	} {
		out, _, err := operationtest.Perform(t, b, map[string]string{"name": tt.name, "type": tt.kind, "server": "127.0.0.1", "serverPort": port})
		r := out.Results
		if err != nil || r["rcode"] != tt.rcode || r["answers"] != tt.answers || r["addresses"] != tt.addresses || r["ttl"] != tt.ttl || r["transport"] != tt.w ||
			r["authoritative"] != "true" || r["server"] != "127.0.0.1:"+port || !strings.HasPrefix(r["servers"], "127.0.0.1:"+port+": "+tt.rcode+" in ") {
			t.Errorf("%s: %q, %v", tt.name, r, err)
		}
		if _, err := time.ParseDuration(r["latency"]); err != nil {
			t.Error(err)
		}
	}
	out, _, err := operationtest.Perform(t, b, map[string]string{"name": "big.example", "server": "127.0.0.1", "serverPort": port})
	if err != nil || out.Results["transport"] != "tcp" || strings.Count(out.Results["addresses"], ",") != maxRecords-1 {
		t.Errorf("%q, %v", out.Results, err)
	}
	// There is no server, or a silent one.
	_, _, err = operationtest.Perform(t, b, map[string]string{"name": "silent.example", "server": "127.0.0.1", "serverPort": port, "timeout": "100ms", "tries": "3"})
	if err == nil || err.Error() != "no name server answers: 127.0.0.1:"+port+": no answer to 3 queries of 100ms each" {
		t.Error(err)
	}
	_, _, err = operationtest.Perform(t, b, map[string]string{"name": "x", "server": "127.0.0.1", "serverPort": "1"})
	if err == nil || err.Error() != "no name server answers: 127.0.0.1:1: read: connection refused" {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	values, _ := b.Fill(map[string]string{"name": "silent", "server": "127.0.0.1", "serverPort": port, "timeout": "30s"})
	if _, err := b.Do(ctx, &operation.Call{Parameters: values}); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	for _, name := range []string{"a..b", strings.Repeat("x", 64), strings.Repeat("abcdefg.", 40)[:254], "..", ".a"} {
		if _, _, err := operationtest.Perform(t, b, map[string]string{"name": name, "server": "127.0.0.1"}); err == nil || !strings.HasSuffix(err.Error(), "is not a DNS name") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDNSLookupAsksEachServer: the answer of each of the node's name servers is reported.
func TestDNSLookupAsksEachServer(t *testing.T) {
	port := serveDNS(t, "127.0.0.3:0", someZone)
	failing := func(_ string, q dnsmessage.Message) []dnsmessage.Message {
		return []dnsmessage.Message{reply(q, dnsmessage.RCodeRefused)}
	}
	serveDNS(t, "127.0.0.4:"+port, failing)
	root := t.TempDir()
	// An absolute link leads below the root.
	if err := errors.Join(os.Mkdir(filepath.Join(root, "etc"), 0o755), os.Symlink("/servers", filepath.Join(root, netprobe.ResolvConf)), os.WriteFile(filepath.Join(root, "servers"),
		[]byte("# text\nsearch a b\nnameserver 127.0.0.2\n nameserver\t127.0.0.3 \nnameserver 127.0.0.4\nnameserver 127.0.0.5\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	out, _, err := operationtest.Perform(t, DNSLookup(operation.Host{FS: hostfs.New(root)}), map[string]string{"name": "two.example", "serverPort": port})
	r := out.Results
	parts := strings.Split(r["servers"], "; ")
	if err != nil || r["server"] != "127.0.0.3:"+port || r["rcode"] != "NOERROR" || len(parts) != 3 || parts[0] != "127.0.0.2:"+port+": read: connection refused" ||
		!strings.HasPrefix(parts[2], "127.0.0.4:"+port+": REFUSED in ") {
		t.Errorf("%q, %v", r, err)
	}
	if _, _, err := operationtest.Perform(t, DNSLookup(operation.Host{FS: hostfs.New(t.TempDir())}), map[string]string{"name": "x"}); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// FuzzDNSAnswer parses arbitrary answers.
func FuzzDNSAnswer(f *testing.F) {
	q := dnsmessage.Message{Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName("all.x."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}
	for _, label := range []string{"all.x.", "two.x.", "1.x."} {
		q.Questions[0].Name = dnsmessage.MustNewName(label)
		for _, m := range someZone("udp", q) {
			b, err := m.Pack()
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var p dnsmessage.Parser
		if _, err := p.Start(b); err != nil {
			return
		}
		if netprobe.Answers(&p, q.Questions[0]); p.SkipAllQuestions() != nil {
			return
		}
		var a dnsAnswer
		_ = a.read(&p)
		for _, r := range a.records {
			if len(r) > 2600 || strings.ContainsAny(r, "\n\x1b\x00") {
				t.Errorf("%q", r)
			}
		}
		if len(a.records) > maxRecords {
			t.Error(len(a.records))
		}
	})
}
