package main

import (
	"context"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/vmtest/testenv"
)

// ownNodeEnv marks a test that runs as the first process of a node of its own.
const ownNodeEnv = "KERNOSIS_TEST_OWN_NODE"

// inOwnNode runs the test again in network, process and mount namespaces of its own, where it is
// process 1. To operations this looks like a node, and no probe leaves it. inOwnNode reports whether
// it was called inside.
func inOwnNode(t *testing.T) bool {
	t.Helper()
	needKernel(t)
	if os.Getenv(ownNodeEnv) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v", "-test.timeout", "2m")
		cmd.Env = append(os.Environ(), ownNodeEnv+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWNS}
		out, err := cmd.CombinedOutput()
		t.Logf("%s", out)
		if err != nil {
			t.Error(err)
		}
		return false
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	must(unix.Mount("proc", "/proc", "proc", 0, ""))
	up := func(name string) netlink.Link {
		link, err := netlink.LinkByName(name)
		must(err)
		must(netlink.LinkSetUp(link))
		return link
	}
	up("lo")
	// A subnet in which nobody answers.
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "kn-near"
	must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "kn-far"}))
	address, err := netlink.ParseAddr("10.96.0.1/24")
	must(err)
	must(netlink.AddrAdd(up("kn-near"), address))
	up("kn-far")
	return true
}

// listenBacklog listens at an address; the kernel keeps one connection more than backlog.
func listenBacklog(t *testing.T, port, backlog int) net.Listener {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "listener")
	defer f.Close()
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, backlog); err != nil {
		t.Fatal(err)
	}
	l, err := net.FileListener(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// connect connects, and keeps the connection open until the test ends.
func connect(t *testing.T, to string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", to)
	if err == nil {
		t.Cleanup(func() { c.Close() })
	}
	return err
}

func TestProbeFailureSet(t *testing.T) {
	testenv.OnlyInTestAll(t)
	if !inOwnNode(t) {
		return
	}
	// Each fault has its own port, so that all exist at the same time.
	full := listenBacklog(t, 81, 1)
	for range 2 {
		if err := connect(t, full.Addr().String()); err != nil {
			t.Fatal(err)
		}
	}
	silent := listenBacklog(t, 82, 16)
	go func() {
		for {
			c, err := silent.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				b := make([]byte, 1024)
				for {
					if _, err := c.Read(b); err != nil {
						return
					}
				}
			}()
		}
	}()
	if err := connect(t, "10.96.0.2:80"); err == nil {
		t.Fatal("10.96.0.2 answers")
	}
	name, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	comm := strings.TrimSpace(string(name))
	for name, c := range map[string]struct {
		address         string
		port            int
		reason, message string
		path            string
		excluded        string
	}{
		"refused":           {"127.0.0.1", 80, "NoListener", "nothing listens at 127.0.0.1:80", "re-probe check-no-listener", "RoutePresent NoNextHop"},
		"accept queue full": {"127.0.0.1", 81, "AcceptQueueFull", "queue 2/1 on 127.0.0.1:81, owner " + comm + "[1]", "re-probe check-accept-queue-full sockets", "RoutePresent ListenerPresent"},
		"silent":            {"127.0.0.1", 82, "AppSilent", "127.0.0.1:82", "re-probe check-app-silent sockets", "ListenerPresent AcceptQueueNotFull"},
		"no route":          {"10.95.0.2", 80, "NoRoute", "10.95.0.2", "check-no-route", ""},
		"dead neighbour":    {"10.96.0.2", 80, "NeighbourFailed", "10.96.0.2", "check-neighbour-failed", "RoutePresent"},
	} {
		t.Run(name, func(t *testing.T) {
			d := diagnosed(t, t.TempDir(), "probe-failure", "address="+c.address, "port="+strconv.Itoa(c.port), "protocol=http")
			found(t, d, c.reason, c.message, c.path, strings.Fields(c.excluded)...)
		})
	}
}
