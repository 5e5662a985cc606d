package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/kernosis/kernosis/vmtest/kubetest"
)

const (
	// address is the node's address, podNetwork the network of its pods. They are in the node's own
	// network namespace, so that several nodes can use the same.
	address    = "10.250.0.1"
	podNetwork = "10.244.0.0/24"

	// device holds the node's addresses. It is a bridge without ports, because that driver is
	// needed for pods anyway.
	device = "node0"
)

// connect configures the node's addresses and forwarders, on the node's thread.
func (n *Node) connect(ctx context.Context) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("loopback device: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: device}}
	if err := netlink.LinkAdd(bridge); err != nil {
		return fmt.Errorf("add the bridge %s: %w", device, err)
	}
	for _, a := range []string{address + "/24", kubetest.ServiceAddress + "/32"} {
		addr, err := netlink.ParseAddr(a)
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(bridge, addr); err != nil {
			return fmt.Errorf("add %s to %s: %w", a, device, err)
		}
	}
	if err := netlink.LinkSetUp(bridge); err != nil {
		return fmt.Errorf("set %s up: %w", device, err)
	}
	// Applies to this network namespace only, like all of /proc/sys/net.
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1\n"), 0o644); err != nil {
		return err
	}
	// The API server is outside the namespace: forward to it from its outside address and from the
	// service address that pods use.
	for _, at := range []string{n.server.Address(), net.JoinHostPort(kubetest.ServiceAddress, "443")} {
		var lc net.ListenConfig
		l, err := lc.Listen(ctx, "tcp", at)
		if err != nil {
			return err
		}
		n.forwards = append(n.forwards, l)
		go forward(l, n.server.Address())
	}
	return n.lead(ctx)
}

// lead starts the proxy through which the API server reaches nodes and pods, if it is configured
// to.
func (n *Node) lead(ctx context.Context) error {
	at := n.server.Egress()
	if at == "" {
		return nil
	}
	// Left by an earlier node.
	if err := os.Remove(at); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", at)
	if err != nil {
		return err
	}
	n.forwards = append(n.forwards, l)
	proxy := &http.Server{Handler: http.HandlerFunc(n.proxy), ReadHeaderTimeout: time.Minute}
	go func() { _ = proxy.Serve(l) }() // until the listener is closed
	return nil
}

// proxy handles a CONNECT request.
func (n *Node) proxy(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect {
		http.Error(w, "CONNECT is what this is for", http.StatusMethodNotAllowed)
		return
	}
	to, err := n.space.dial(r.Context(), "tcp", r.URL.Host)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer to.Close()
	from, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer from.Close()
	if _, err := io.WriteString(from, "HTTP/1.1 200 Connection established\r\n\r\n"); err == nil {
		pass(from, to)
	}
}

// forward forwards connections until the listener is closed.
func forward(l net.Listener, to string) {
	for {
		from, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer from.Close()
			target, err := net.Dial("tcp", to) //nolint:noctx // as long as the peer waits
			if err != nil {
				return // the API server is stopped; the peer's connection is closed
			}
			defer target.Close()
			pass(from, target)
		}()
	}
}

// pass copies in both directions until either side has closed.
func pass(a, b net.Conn) {
	var once sync.Once
	ended := make(chan struct{})
	for _, p := range [][2]net.Conn{{a, b}, {b, a}} {
		go func() {
			_, _ = io.Copy(p[0], p[1]) // errors are left to the peers
			once.Do(func() { close(ended) })
		}()
	}
	<-ended
}
