package network

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"
	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/vmtest/netlab"
	"github.com/kernosis/kernosis/vmtest/operationtest"
)

// captured is a packet in the file.
type captured struct {
	gopacket.Packet
	info gopacket.CaptureInfo
	link string
}

// readCapture reads the captured file.
func readCapture(t *testing.T, files *operationtest.Artifacts) (packets []captured) {
	t.Helper()
	r, err := pcapgo.NewNgReader(strings.NewReader(files.Read(t, "capture.pcapng")), pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	for {
		data, info, err := r.ReadPacketData()
		if errors.Is(err, io.EOF) {
			return packets
		}
		if err != nil {
			t.Fatal(err)
		}
		i, err := r.Interface(info.InterfaceIndex)
		if err != nil || i.LinkType != layers.LinkTypeLinuxSLL {
			t.Fatal(i, err)
		}
		packets = append(packets, captured{gopacket.NewPacket(data, layers.LayerTypeLinuxSLL, gopacket.Default), info, i.Name})
	}
}

// bound matches a namespace's list of packet sockets (sk RefCnt Type Proto Iface R ...) once one of
// them receives. Until then the socket has no protocol, which may take long on a busy machine.
var bound = regexp.MustCompile(`(?m)^\S+ +\d+ +\d+ +0003 +\d+ +1 `)

// captureWhile captures in a namespace while fn makes traffic repeatedly, starting when the capture
// starts.
func captureWhile(t *testing.T, in *netlab.Net, params map[string]string, fn func()) (operation.Output, *operationtest.Artifacts) {
	t.Helper()
	sockets := fmt.Sprintf("/proc/%d/net/packet", holder(in))
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for begun := false; ; {
			select {
			case <-end:
				return
			default:
			}
			if !begun {
				list, _ := os.ReadFile(sockets)
				begun = bound.Match(list)
				time.Sleep(time.Millisecond)
				continue
			}
			fn()
		}
	}()
	defer func() { close(end); <-done }()
	return must(t, PacketCapture(host()), params)
}

func talkTo(n *netlab.Net, to, request string) func() {
	return func() { _ = n.Probe(to, time.Second, request) }
}

// Traffic is captured at the target's end, and the results agree with the file.
func TestPacketCapture(t *testing.T) {
	prober, target := netlab.PairIn(t, 33)
	target.Serve("10.97.33.2:80", netlab.Echo)
	talk := talkTo(prober, "10.97.33.2:80", "a secret request")
	out, files := captureWhile(t, target, map[string]string{
		"netns": inode(prober), "address": "10.97.33.2", "port": "80", "protocol": "http", "packets": "20", "duration": "30s",
	}, talk)
	wantResults(t, out, map[string]string{
		"packets": "^20$", "stoppedBy": "^packets$", "kernelDropped": "^0$", "filter": "^tcp host 10.97.33.2 port 80$", "targetNetNS": inode(target),
		"flows": `tcp 10.97.33.1:\d+ > 10.97.33.2:80 on probe0: .*1 SYN, 1 SYN-ACK`, "syn": "^[1-9]", "synAck": "^[1-9]", "handshake": "s$",
		// The capture begins and ends in the middle of the conversation.
		"firstPackets":  `\+\S+ probe0 in tcp 10.97.33.1:\d+ > 10.97.33.2:80 SYN seq \d+ length 0; \+\S+ probe0 out tcp 10.97.33.2:80 > 10.97.33.1:\d+ SYN,ACK`,
		"unansweredSYN": "^[01]$", "icmpErrors": "^0$",
	})
	packets := readCapture(t, files)
	if len(packets) != 20 {
		t.Fatalf("%d packets in the file", len(packets))
	}
	if strings.Contains(files.Read(t, "capture.pcapng"), "secret") {
		t.Error("the file has what was said")
	}
	syns := 0
	for i, p := range packets {
		tcp, ok := p.TransportLayer().(*layers.TCP)
		if !ok || p.link != "probe0" || tcp.SrcPort != 80 && tcp.DstPort != 80 || time.Since(p.info.Timestamp) > time.Minute || p.info.Length < p.info.CaptureLength {
			t.Fatalf("packet %d on %s: %s, %+v", i, p.link, p, p.info)
		}
		// Sent packets are stamped later than received ones.
		if i > 0 && packets[i-1].info.Timestamp.Sub(p.info.Timestamp) > time.Second {
			t.Errorf("packet %d is before the one before", i)
		}
		if tcp.SYN && !tcp.ACK {
			syns++
		}
		if sll, ok := p.Layer(layers.LayerTypeLinuxSLL).(*layers.LinuxSLL); !ok || (sll.PacketType == layers.LinuxSLLPacketTypeOutgoing) != (tcp.SrcPort == 80) {
			t.Errorf("packet %d: direction %+v", i, sll)
		}
	}
	if out.Results["syn"] != string(rune('0'+syns)) && syns < 10 {
		t.Errorf("%d SYNs in the file, %s reported", syns, out.Results["syn"])
	}

	_, files = captureWhile(t, target, map[string]string{"address": "10.97.33.2", "port": "80", "payload": "true", "packets": "20", "duration": "30s"}, talk)
	if !strings.Contains(files.Read(t, "capture.pcapng"), "secret") {
		t.Error("the file has not what was said, which was asked for")
	}
}

// The summary shows what goes wrong.
func TestPacketCaptureFaults(t *testing.T) {
	prober, target := netlab.PairIn(t, 33)
	prober.AddGhost("10.97.33.50")
	target.Serve("[fd97:33::2]:80", netlab.Echo)
	for name, c := range map[string]struct {
		address, to string
		want        map[string]string
	}{
		"refused":    {"10.97.33.2", "10.97.33.2:81", map[string]string{"rst": "^[1-9]", "flows": `1 SYN, 1 RST received`, "unansweredSYN": "^0$"}},
		"unanswered": {"10.97.33.50", "10.97.33.50:80", map[string]string{"unansweredSYN": "^[1-9]", "flows": `SYN unanswered`, "synAck": "^0$"}},
		"IPv6":       {"fd97:33::2", "[fd97:33::2]:80", map[string]string{"flows": `tcp \[fd97:33::1\]:\d+ > \[fd97:33::2\]:80`, "rst": "."}},
	} {
		t.Run(name, func(t *testing.T) {
			out, files := captureWhile(t, prober, map[string]string{
				"netns": inode(prober), "where": "given", "address": c.address, "duration": "30s", "packets": "30",
			}, func() { _ = prober.Probe(c.to, 20*time.Millisecond, "") })
			c.want["stoppedBy"], c.want["targetNetNS"] = "^packets$", inode(prober)
			wantResults(t, out, c.want)
			if len(readCapture(t, files)) == 0 {
				t.Error("nothing in the file")
			}
		})
	}
}

// An ICMP error comes from another address than the one it is about.
func TestPacketCaptureICMP(t *testing.T) {
	prober, target := netlab.PairIn(t, 33)
	target.AddRoute("10.10.0.0/24", netlab.Unreachable)
	prober.AddRouteVia("10.10.0.0/24", "10.97.33.2")
	// Kernels limit the rate of such errors, older kernels for all network namespaces together, so
	// one of several is enough. Two limits on one budget (of routes and of ICMP) would let no more
	// than two of a series pass.
	target.Sysctl("net/ipv4/icmp_ratelimit", "0")
	out, _ := captureWhile(t, prober, map[string]string{
		"netns": inode(prober), "where": "given", "address": "10.10.0.1", "port": "80", "protocol": "tcp", "duration": "30s", "packets": "12",
	}, func() { _ = prober.Probe("10.10.0.1:80", 100*time.Millisecond, "") })
	wantResults(t, out, map[string]string{"icmpErrors": "^[1-9]", "flows": `tcp 10.97.33.1:\d+ > 10.10.0.1:80 on probe0: [^;]*\d× ICMP DestinationUnreachable\(Host\) from 10.97.33.2`})
}

// A retransmitted segment is distinguished from a new one.
func TestPacketCaptureRetransmit(t *testing.T) {
	prober, target := netlab.PairIn(t, 33)
	target.Serve("10.97.33.2:80", silent)
	c := prober.Dial("10.97.33.2:80")
	target.DropTCP()
	if _, err := c.Write([]byte("lost")); err != nil {
		t.Fatal(err)
	}
	out, _ := must(t, PacketCapture(host()), map[string]string{
		"netns": inode(prober), "where": "given", "port": "80", "duration": "30s", "packets": "2",
	})
	wantResults(t, out, map[string]string{"retransmitted": "^[12]$", "flows": "sent again"})
}

// A packet on the loopback device is captured once.
func TestPacketCaptureLoopback(t *testing.T) {
	n := netlab.New(t)
	out, files := captureWhile(t, n, map[string]string{"netns": inode(n), "address": "127.0.0.1", "protocol": "udp", "duration": "30s", "packets": "10"}, func() {
		_ = n.Do(func() error {
			c, err := net.Dial("udp", "127.0.0.1:9")
			if err == nil {
				_, err = c.Write([]byte("x"))
				err = errors.Join(err, c.Close())
			}
			return err
		})
	})
	wantResults(t, out, map[string]string{"flows": `udp 127.0.0.1:\d+ > 127.0.0.1:9 on lo: 1/0 packets, 1/0 bytes`})
	for _, p := range readCapture(t, files) {
		if p.link != "lo" {
			t.Errorf("on %s", p.link)
		}
	}
}

func TestPacketCaptureLimits(t *testing.T) {
	prober, target := netlab.PairIn(t, 33)
	target.Serve("10.97.33.2:80", netlab.Echo)
	talk := talkTo(prober, "10.97.33.2:80", "ping")
	const size = 4096
	out, files := captureWhile(t, target, map[string]string{"netns": inode(target), "bytes": "4Ki", "duration": "30s"}, talk)
	wantResults(t, out, map[string]string{"stoppedBy": "^bytes$"})
	if n := len(files.Read(t, "capture.pcapng")); n > size || n < size/2 {
		t.Errorf("the file has %d bytes", n)
	}

	out, _ = must(t, PacketCapture(host()), map[string]string{"netns": inode(target), "port": "9", "duration": "20ms"})
	wantResults(t, out, map[string]string{"packets": "^0$", "stoppedBy": "^duration$", "flows": "^$", "flowCount": "^0$"})

	for params, message := range map[[2]string]string{
		{"snaplen", "20"}: "snaplen: want at least 60", {"duration", "2m"}: "duration", {"link", "eth7"}: `no device "eth7"`, {"protocol", "x"}: "protocol",
	} {
		fail(t, PacketCapture(host()), map[string]string{"netns": inode(target), params[0]: params[1]}, message)
	}

	// Without disk budget, the packets captured so far are reported.
	b := PacketCapture(host())
	v, err := b.Fill(map[string]string{"netns": inode(target), "duration": "30s"})
	if err != nil {
		t.Fatal(err)
	}
	stop := keepProbing(prober, "10.97.33.2:80")
	out, err = b.Run(t.Context(), &operation.Call{Parameters: v, Artifacts: &operationtest.Artifacts{Limit: 8 << 10}})
	stop()
	if err != nil {
		t.Fatal(err)
	}
	wantResults(t, out, map[string]string{"stoppedBy": "^budget$", "note": "is truncated", "packets": "^[1-9]"})

	// The capture ends with the run.
	ctx, cancel := timeout(t, 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	v["port"] = "9"
	if _, err := b.Run(ctx, &operation.Call{Parameters: v}); err == nil || time.Since(began) > 10*time.Second {
		t.Errorf("%v after %s", err, time.Since(began))
	}
}

// An address that is not on this node is captured where the parameters say.
func TestPacketCaptureElsewhere(t *testing.T) {
	n, _ := netlab.PairIn(t, 33)
	n.AddGhost("10.97.33.50")
	out, _ := captureWhile(t, n, map[string]string{"netns": inode(n), "address": "10.97.33.50", "duration": "30s", "packets": "2", "link": "probe0"},
		func() { _ = n.Probe("10.97.33.50:80", 20*time.Millisecond, "") })
	wantResults(t, out, map[string]string{"targetNetNS": inode(n), "syn": "^2$"})
}

// The filter applies before the first packet: no other packet is captured.
func TestPacketCaptureTakesNothingElse(t *testing.T) {
	prober, target := netlab.PairIn(t, 33)
	target.Serve("10.97.33.2:80", netlab.Echo)
	p, _, err := findPlace(host(), operation.Values{"netns": inode(target)})
	if err != nil {
		t.Fatal(err)
	}
	stop := keepProbing(prober, "10.97.33.2:80")
	defer stop()
	for range 20 {
		s, err := openCapture(host(), p, filter{port: 9, protocol: unix.IPPROTO_UDP}, 0, 128)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.run(t.Context(), 5*time.Millisecond, func(p *packet) error {
			t.Errorf("%x", p.data)
			return nil
		}); !errors.Is(err, io.EOF) {
			t.Error(err)
		}
		s.close()
	}
}
