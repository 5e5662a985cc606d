package collector

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/collector/hostfs"
)

// canaryDial bounds a connection over loopback, refused within microseconds unless it is dropped.
const canaryDial = 200 * time.Millisecond

// sockCanary makes real connections to a port of this machine where nothing listens. Their records
// prove that programs are attached and know their targets; a test run of a program proves neither.
type sockCanary struct {
	at      netip.AddrPort // held by a socket that does not listen; invalid: not open
	netns   uint32
	watched bool // it is among the targets
	nonce   uint64
	since   time.Duration // since boot: when the connection with the nonce began
}

// open reserves a port until ctx is done.
func (c *sockCanary) open(ctx context.Context) error {
	if c.at.IsValid() {
		return nil
	}
	var st unix.Stat_t
	// This process' own namespace, from its own /proc.
	if err := unix.Stat("/proc/self/ns/net", &st); err != nil {
		return fmt.Errorf("canary: network namespace: %w", err)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("canary: %w", err)
	}
	loopback := [4]byte{127, 0, 0, 1}
	err = unix.Bind(fd, &unix.SockaddrInet4{Addr: loopback})
	var name unix.Sockaddr
	if err == nil {
		name, err = unix.Getsockname(fd)
	}
	bound, ok := name.(*unix.SockaddrInet4)
	if err != nil || !ok {
		return errors.Join(fmt.Errorf("canary: own port: %w", err), unix.Close(fd))
	}
	c.at, c.netns = netip.AddrPortFrom(netip.AddrFrom4(loopback), uint16(bound.Port)), uint32(st.Ino)
	context.AfterFunc(ctx, func() { _ = unix.Close(fd) })
	return nil
}

// add adds the canary to the targets if there are any: otherwise no attached program needs a test.
func (c *sockCanary) add(targets *bpf.SockTargets) {
	if c.watched = c.at.IsValid() && len(targets.Keys) > 0; c.watched {
		targets.Keys[bpf.NewSockTargetKey(c.netns, c.at.Addr(), c.at.Port())] = bpf.SockTarget{ID: bpf.SockTargetCanary}
	}
}

// send opens a connection, which must be refused. It returns false if there is no canary, or if
// this machine does not let the connection reach the port.
func (c *sockCanary) send(nonce uint64) bool {
	if !c.watched {
		return false
	}
	c.nonce, c.since = nonce, hostfs.BootTime()
	ctx, cancel := context.WithTimeout(context.Background(), canaryDial)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp4", c.at.String())
	if err == nil {
		_ = conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// received returns the nonce of a connection's record, or 0 if the record belongs to an earlier
// connection or an earlier run of the agent.
func (c *sockCanary) received(r *bpf.SockFail) uint64 {
	if time.Duration(r.StartNS) < c.since {
		return 0
	}
	return c.nonce
}
