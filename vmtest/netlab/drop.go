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

// DropTCP makes this end of the pair drop every incoming TCP packet before the IP layer receives
// it, until undo is called or the test ends. It needs sch_ingress and cls_bpf.
func (n *Net) DropTCP() (undo func()) {
	n.t.Helper()
	// Do not set this by an attribute of the link: then the kernel would choose the kind.
	qdisc := &netlink.GenericQdisc{QdiscType: "clsact", QdiscAttrs: netlink.QdiscAttrs{
		Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}}
	n.In(func() error {
		l, err := netlink.LinkByName(device)
		if err != nil {
			return fmt.Errorf("drop at %s: %w", device, err)
		}
		// Kernels before 5.11 count programs against the process's memlock limit.
		if err := rlimit.RemoveMemlock(); err != nil {
			return err
		}
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: dropTCP()})
		if err != nil {
			return fmt.Errorf("drop at %s: %w", device, err)
		}
		defer p.Close() // the filter keeps the program loaded
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

// dropTCP returns the filter program: it drops IPv4 and IPv6 packets whose IP header is directly
// followed by TCP, and passes all others.
func dropTCP() asm.Instructions {
	const (
		etherLen             = 14
		protocol4, protocol6 = etherLen + 9, etherLen + 6 // offset in the packet
		skbProtocol          = 16                         // struct __sk_buff
		etherIP4, etherIP6   = 0x0008, 0xdd86             // as loaded on a little-endian CPU
		pass, drop           = 0, 2                       // TC_ACT_OK, TC_ACT_SHOT
	)
	return asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1), // LoadAbs expects the packet in R6
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
