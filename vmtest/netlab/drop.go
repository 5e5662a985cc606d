package netlab

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/rlimit"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// DropTCP has the pair's device of this end drop every TCP packet that comes in,
// before the IP layer sees it, until the test's end or the call of what it
// returns. It needs sch_ingress and cls_bpf.
func (n *Net) DropTCP() (undo func()) {
	n.t.Helper()
	// Its own link attributes would not do: their kind is the kernel's choice.
	qdisc := &netlink.GenericQdisc{QdiscType: "clsact", QdiscAttrs: netlink.QdiscAttrs{
		Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}}
	n.In(func() error {
		l, err := netlink.LinkByName(device)
		if err != nil {
			return fmt.Errorf("drop at %s: %w", device, err)
		}
		// Kernels before 5.11 charge programs to the process's limit.
		if err := rlimit.RemoveMemlock(); err != nil {
			return err
		}
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: dropTCP()})
		if err != nil {
			return fmt.Errorf("drop at %s: %w", device, err)
		}
		defer p.Close() // the filter keeps it
		qdisc.LinkIndex = l.Attrs().Index
		filter := &netlink.BpfFilter{Fd: p.FD(), Name: "drop_tcp", DirectAction: true, FilterAttrs: netlink.FilterAttrs{
			LinkIndex: qdisc.LinkIndex, Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1, Priority: 1, Protocol: unix.ETH_P_ALL,
		}}
		if err := errors.Join(netlink.QdiscAdd(qdisc), netlink.FilterAdd(filter)); err != nil {
			return fmt.Errorf("drop at %s: %w", device, err)
		}
		return nil
	})
	return func() {
		n.t.Helper()
		n.In(func() error { return netlink.QdiscDel(qdisc) })
	}
}

// dropTCP is the filter: drop IPv4 and IPv6 packets with TCP right behind the
// IP header, pass the others.
func dropTCP() asm.Instructions {
	const (
		etherLen             = 14
		protocol4, protocol6 = etherLen + 9, etherLen + 6 // of the packet, behind the IP header's start
		skbProtocol          = 16                         // struct __sk_buff
		etherIP4, etherIP6   = 0x0008, 0xdd86             // as a little-endian CPU loads them
		pass, drop           = 0, 2                       // TC_ACT_OK, TC_ACT_SHOT
	)
	return asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1), // where LoadAbs looks for the packet
		asm.LoadMem(asm.R7, asm.R1, skbProtocol, asm.Word),
		asm.JEq.Imm(asm.R7, etherIP4, "ip4"),
		asm.JEq.Imm(asm.R7, etherIP6, "ip6"),
		asm.Ja.Label("pass"),
		asm.LoadAbs(protocol4, asm.Byte).WithSymbol("ip4"),
		asm.Ja.Label("tcp"),
		asm.LoadAbs(protocol6, asm.Byte).WithSymbol("ip6"),
		asm.JEq.Imm(asm.R0, unix.IPPROTO_TCP, "drop").WithSymbol("tcp"),
		asm.Mov.Imm(asm.R0, pass).WithSymbol("pass"),
		asm.Return(),
		asm.Mov.Imm(asm.R0, drop).WithSymbol("drop"),
		asm.Return(),
	}
}
