package bpf

import (
	"net"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// Offsets in struct bpf_sock_ops, and the value of TCP_CONNECT_CB.
const (
	sockOpsOp         = 0
	sockOpsRemotePort = 64
	sockOpsConnect    = 3
)

// takesBack returns a sock_ops program that disables state callbacks for sockets that connect to a
// port, like a program that sets flags without regard to flags set by others.
func takesBack(t *testing.T, port uint16) *ebpf.Program {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "takes_back", Type: ebpf.SockOps, AttachType: ebpf.AttachCGroupSockOps, License: "GPL",
		Instructions: asm.Instructions{
			asm.LoadMem(asm.R2, asm.R1, sockOpsOp, asm.Word),
			asm.JNE.Imm(asm.R2, sockOpsConnect, "done"),
			asm.LoadMem(asm.R2, asm.R1, sockOpsRemotePort, asm.Word),
			asm.HostTo(asm.BE, asm.R2, asm.Word),
			asm.JNE.Imm(asm.R2, int32(port), "done"),
			asm.Mov.Imm(asm.R2, 0),
			asm.FnSockOpsCbFlagsSet.Call(),
			asm.Mov.Imm(asm.R0, 1).WithSymbol("done"),
			asm.Return(),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// TestSockFailBesideAnotherSockOpsProgram: a program that ends the state callbacks hides no
// failure, because the tracepoint is followed while it is attached.
func TestSockFailBesideAnotherSockOpsProgram(t *testing.T) {
	const port = 4711
	k := testKernel(t)
	n := newTestNet(t)
	l := watch(t, k, NewSockTargetKey(n.inode, netip.Addr{}, 0))
	if !l.serves(hookState, SockfailProgFollowOps) {
		t.Skip("states are not seen by a sock_ops program here:", l.Reports())
	}
	at := n.listen(t, "127.0.0.1:4711", func(c net.Conn) { read(c); c.(*net.TCPConn).SetLinger(0) })
	failures := func() int {
		n.in(t, func() error {
			c, err := net.Dial("tcp", at.String())
			if err == nil {
				ask(1)(c)
				c.Close()
			}
			return err
		})
		return len(drainSockets(t, l))
	}
	// If no hook sees connect() return, the tracepoint is always followed.
	always := l.links[hookReturn4] == nil || l.links[hookReturn6] == nil
	check := func(id ebpf.ProgramID, there bool) {
		t.Helper()
		if err := l.CheckFollowers(); err != nil {
			t.Fatal(err)
		}
		// Agents of other tests may have programs as well.
		if _, err := l.sockOps.look(l.programs[SockfailProgFollowOps]); err != nil || l.sockOps.others[id] != there {
			t.Errorf("the other program is there: %v, %v; want %v", l.sockOps.others[id], err, there)
		}
		want := always || len(l.sockOps.others) > 0
		if got := l.serves(hookStateToo, SockfailProgStateRaw); got != want {
			t.Fatalf("the tracepoint is followed: %v, want %v; %+v", got, want, l.Reports())
		}
	}
	check(0, false)
	if got := failures(); got != 1 {
		t.Fatalf("alone: %d records, want 1", got)
	}
	program := takesBack(t, port)
	info, err := program.Info()
	if err != nil {
		t.Fatal(err)
	}
	id, _ := info.ID()
	other, err := cgroupRoot(ebpf.AttachCGroupSockOps)(program)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	// Otherwise the test would prove nothing.
	if err := l.Detach(hookStateToo); err != nil {
		t.Fatal(err)
	}
	if got := failures(); got != 0 {
		t.Fatalf("the other program leaves ours its calls: %d records", got)
	}
	check(id, true)
	if got := failures(); got != 1 {
		t.Errorf("beside another: %d records, want 1", got)
	}
	other.Close()
	program.Close()
	check(id, false)
	if got := failures(); got != 1 {
		t.Errorf("alone again: %d records, want 1", got)
	}
}
