package bpf

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// kernelMemory returns the address of memory of the kernel, a map's, with these contents. fill may
// use the address.
func kernelMemory(t *testing.T, fill func(address uint64) []byte) uint64 {
	t.Helper()
	array := func(size uint32) *ebpf.Map {
		m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: size, MaxEntries: 1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		return m
	}
	memory, address := array(4096), array(8)
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.RawTracepoint, License: "Dual BSD/GPL", Instructions: asm.Instructions{
		asm.LoadMapValue(asm.R1, memory.FD(), 0),
		asm.LoadMapValue(asm.R2, address.FD(), 0),
		asm.StoreMem(asm.R2, 0, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return(),
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var at uint64
	if _, err := p.Run(&ebpf.RunOptions{Context: make([]byte, 8)}); err != nil {
		t.Fatal(err)
	}
	if err := address.Lookup(uint32(0), &at); err != nil {
		t.Fatal(err)
	}
	if err := memory.Put(uint32(0), append(fill(at), make([]byte, 4096)...)[:4096]); err != nil {
		t.Fatal(err)
	}
	return at
}

// offsetOf returns the offset of a field in a struct of the running kernel.
func offsetOf(t *testing.T, k *Kernel, structName, field string) int {
	t.Helper()
	var s *btf.Struct
	if err := k.typeByName(structName, &s); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(s.Members, func(m btf.Member) bool { return m.Name == field })
	if i < 0 {
		t.Fatalf("%s has no %s", structName, field)
	}
	return int(s.Members[i].Offset.Bytes())
}

// TestHWErrorPrograms runs each program with the arguments of its tracepoint. VMs have neither a
// memory controller with EDAC nor a network card with health reporters; the others are provoked in
// vmtest.
func TestHWErrorPrograms(t *testing.T) {
	k := testKernel(t)
	l := openStem(t, hwerror(), k, nil)
	at := kernelMemory(t, func(at uint64) []byte {
		// Two strings, a name in a device of a devlink, and a struct mce.
		b := make([]byte, 3072)
		copy(b, "DIMM_A1")
		copy(b[256:], "memory read error")
		copy(b[512:], "0000:03:00.0")
		if builtIn("devlink_health_report")(k) == nil {
			binary.NativeEndian.PutUint64(b[1024+offsetOf(t, k, "devlink", "dev"):], at+2048)
			binary.NativeEndian.PutUint64(b[2048+offsetOf(t, k, "device", "kobj")+offsetOf(t, k, "kobject", "name"):], at+512)
		}
		binary.NativeEndian.PutUint64(b[768:], 0xbe00000000000108)
		b[768+56], b[768+65] = 2, 5                      // cpuvendor, bank
		binary.NativeEndian.PutUint32(b[768+68:], 70000) // extcpu
		return b
	})
	for program, c := range map[string]struct {
		tracepoint string
		args       []uint64
		want       HWError
		texts      [3]string // part, detail, reporter
	}{
		HwerrorProgMceRaw: {"", []uint64{at + 768}, HWError{What: HWErrorMachineCheck, Status: 0xbe00000000000108, CPU: 70000, Bank: 5, Vendor: 2}, [3]string{}},
		HwerrorProgMemoryRaw: {"", []uint64{1, at + 256, at, 3, 2, 0xff, 0, 0, 4096, 5, 0, at},
			HWError{What: HWErrorMemory, Severity: 1, Count: 3, Controller: 2}, [3]string{"DIMM_A1", "memory read error"}},
		HwerrorProgPageRaw: {"", []uint64{0x12345, 13, 3}, HWError{What: HWErrorPage, PFN: 0x12345, Type: 13, Result: 3}, [3]string{}},
		HwerrorProgPcieRaw: {"", []uint64{at + 512, 0x40, 2, 0, 0}, HWError{What: HWErrorPCIe, Status: 0x40, Severity: 2}, [3]string{"0000:03:00.0"}},
		HwerrorProgHealthRaw: {"devlink_health_report", []uint64{at + 1024, at, at + 256},
			HWError{What: HWErrorDeviceHealth}, [3]string{"0000:03:00.0", "memory read error", "DIMM_A1"}},
	} {
		t.Run(program, func(t *testing.T) {
			if c.tracepoint != "" {
				if err := builtIn(c.tracepoint)(k); err != nil {
					t.Skip(err)
				}
			}
			if err := l.loadProgram(program); err != nil {
				t.Fatal(err)
			}
			ctx := make([]byte, 0, 8*len(c.args))
			for _, a := range c.args {
				ctx = binary.NativeEndian.AppendUint64(ctx, a)
			}
			if _, err := l.programs[program].Run(&ebpf.RunOptions{Context: ctx}); err != nil {
				t.Fatal(err)
			}
			copy(c.want.Part[:], c.texts[0])
			copy(c.want.Detail[:], c.texts[1])
			copy(c.want.Reporter[:], c.texts[2])
			n := 0
			if _, err := l.Drain(func(raw []byte) {
				r, err := View[HWError](raw)
				if err != nil || r.H.Kind != KindHWError {
					t.Fatal(err, r)
				}
				n++
				got := *r
				got.H = Header{}
				if got != c.want {
					t.Errorf("%+v\nwant\n%+v", got, c.want)
				}
			}); err != nil {
				t.Fatal(err)
			}
			if n != 1 {
				t.Errorf("%d records", n)
			}
		})
	}
}

// A stem lacks nothing on a kernel without a feature. Where a hook can't be attached although the
// kernel has the feature, the stem is down.
func TestHookOfAFeature(t *testing.T) {
	k := testKernel(t)
	for _, c := range []struct {
		name   string
		usable error
		up     bool
	}{{"not built", errors.New("tracepoint x: not in BTF"), true}, {"refused", nil, false}} {
		t.Run(c.name, func(t *testing.T) {
			s := hwerror()
			v := &s.hooks[0].variants[0]
			v.usable = func(*Kernel) error { return c.usable }
			v.attach = func(*ebpf.Program) (link.Link, error) { return nil, unix.EINVAL }
			l, err := Open(s, k, nil)
			t.Cleanup(func() { l.Close() })
			if r := l.Reports()[0]; (err == nil) != c.up || r.Optional != c.up || r.State == Attached {
				t.Errorf("%v, %+v", err, r)
			}
		})
	}
}
