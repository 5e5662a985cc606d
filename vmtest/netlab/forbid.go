package netlab

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
)

// Forbid attaches a program to a cgroup that rejects every connect() to an address, as network
// policies do, until undo is called or the test ends. The program handles the connections of the
// cgroup and everything below it. It compares only the first four bytes of an IPv6 address, which
// are unique within a lab.
func Forbid(t testing.TB, cgroup string, to netip.Addr) (undo func()) {
	t.Helper()
	const userIP4, userIP6 = 4, 8 // of struct bpf_sock_addr
	attach, offset := ebpf.AttachCGroupInet4Connect, int16(userIP4)
	if to.Is6() {
		attach, offset = ebpf.AttachCGroupInet6Connect, userIP6
	}
	word := binary.NativeEndian.Uint32(to.AsSlice())
	if err := rlimit.RemoveMemlock(); err != nil { // kernels before 5.11 count programs against it
		t.Fatal(err)
	}
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.CGroupSockAddr, AttachType: attach, License: "GPL",
		Instructions: asm.Instructions{
			asm.LoadMem(asm.R1, asm.R1, offset, asm.Word),
			asm.Mov.Imm(asm.R0, 0),
			asm.JEq.Imm32(asm.R1, int32(word), "refuse"),
			asm.Mov.Imm(asm.R0, 1),
			asm.Return().WithSymbol("refuse"),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close() // the link keeps the program loaded
	lk, err := link.AttachCgroup(link.CgroupOptions{Path: cgroup, Attach: attach, Program: p})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lk.Close() })
	return func() {
		// Closing the link is not enough if a child process that is just being forked has it open
		// too.
		if err := lk.Detach(); err != nil {
			t.Error(err)
		}
	}
}
