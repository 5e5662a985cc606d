package bpf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/kernosis/kernosis/vmtest/testenv"
)

// typesWithout returns the running kernel's BTF with these names removed, as for a kernel built
// without these types, fields and values.
func typesWithout(t *testing.T, names ...string) *btf.Spec {
	t.Helper()
	raw, err := os.ReadFile("/sys/kernel/btf/vmlinux")
	if err != nil {
		t.Fatal(err)
	}
	var header struct {
		Magic          uint16
		Version, Flags uint8
		Length         uint32
		Types, TypeLen uint32
		Names, NameLen uint32
	}
	if err := binary.Read(bytes.NewReader(raw), binary.NativeEndian, &header); err != nil {
		t.Fatal(err)
	}
	strings := raw[header.Length+header.Names:][:header.NameLen]
	for _, name := range names {
		at := bytes.Index(strings, []byte("\x00"+name+"\x00"))
		if at >= 0 { // else this kernel was built without it
			strings[at+1] = 'X' // the offsets of other names and the type numbers stay the same
		}
	}
	spec, err := btf.LoadSpecFromReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

func withoutMemcg() []string { return []string{"memory_cgrp_id", "mem_cgroup"} }

// TestKernelsWithoutOptions checks that a missing build option costs only what it would report, not
// the whole program. No Debian kernel lacks these options.
func TestKernelsWithoutOptions(t *testing.T) {
	testenv.OnlyInTestAll(t)
	k := testKernel(t)
	blkcg := []string{"bi_blkg", "blkcg", "blkcg_gq"}
	for _, c := range []struct {
		option string
		names  []string // names that BTF lacks without it
	}{
		{"none", nil},
		{"MEMCG", withoutMemcg()},
		{"MEMCG_V1", []string{"oom_lock"}},
		{"BLK_CGROUP", blkcg},
		{"CGROUPS", append(append([]string{"cgroups", "css_set", "cgroup", "cgroup_subsys_state", "cgroup_subsys_id"}, withoutMemcg()...), blkcg...)},
		{"IPV6", []string{"skc_v6_daddr", "skc_v6_rcv_saddr"}},
		{"TASK_IO_ACCOUNTING", []string{"ioac", "task_io_accounting"}},
		{"DETECT_HUNG_TASK", []string{"last_switch_count", "last_switch_time"}},
		{"DETECT_HUNG_TASK_BLOCKER", []string{"blocker", "last_holder"}},
	} {
		t.Run(c.option, func(t *testing.T) {
			types := typesWithout(t, c.names...)
			for _, s := range Stems() {
				l := &Loaded{Stem: s.Name, stem: s, kernel: k}
				spec, err := l.collection()
				if err != nil {
					t.Fatal(err)
				}
				for name := range spec.Programs {
					alone := spec.Copy()
					alone.Programs = map[string]*ebpf.ProgramSpec{name: alone.Programs[name]}
					load := func(kernel *btf.Spec) error {
						coll, err := ebpf.NewCollectionWithOptions(alone, ebpf.CollectionOptions{
							Programs: ebpf.ProgramOptions{KernelTypes: kernel}, Cache: k.cache(),
						})
						if err == nil {
							coll.Close()
						}
						return err
					}
					if err := load(types); err != nil {
						if load(nil) != nil {
							continue // it does not load on this kernel anyway
						}
						if verifier, ok := errors.AsType[*ebpf.VerifierError](err); ok {
							err = verifier
						}
						t.Errorf("%s/%s: %v", s.Name, name, err)
					}
				}
			}
		})
	}
}

// TestOOMKillWithoutMemoryGroups runs the program for this thread, as if the thread had been killed
// for its own demand for memory. Without CONFIG_MEMCG all memory is the machine's, and the default
// hierarchy names the victim's cgroup.
func TestOOMKillWithoutMemoryGroups(t *testing.T) {
	k := testKernel(t)
	l := openStem(t, oomkill(), k, nil)
	alone, err := l.collection()
	if err != nil {
		t.Fatal(err)
	}
	alone.Programs = map[string]*ebpf.ProgramSpec{OomkillProgVictimRaw: alone.Programs[OomkillProgVictimRaw]}
	coll, err := ebpf.NewCollectionWithOptions(alone, ebpf.CollectionOptions{
		MapReplacements: maps.Clone(l.maps), Cache: k.cache(),
		Programs: ebpf.ProgramOptions{KernelTypes: typesWithout(t, withoutMemcg()...)},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer coll.Close()
	var records []OOMKill
	for _, p := range []*ebpf.Program{l.programs[OomkillProgVictimRaw], coll.Programs[OomkillProgVictimRaw]} {
		if _, err := p.Run(&ebpf.RunOptions{Context: make([]byte, 16)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Drain(func(raw []byte) {
		if r, err := View[OOMKill](raw); err != nil {
			t.Error(err)
		} else if r.Trigger.TGID == uint32(os.Getpid()) {
			records = append(records, *r)
		}
	}); err != nil || len(records) != 2 {
		t.Fatalf("%d records, want 2 (%v)", len(records), err)
	}
	with, without := &records[0], &records[1]
	if without.Memory.Levels() != 0 || without.Scope != OOMScopeGlobal || without.LimitLevel != -1 || without.Limit != OOMNoLimit {
		t.Errorf("%d levels of memory groups, scope %d, limit %d at level %d", without.Memory.Levels(), without.Scope, without.Limit, without.LimitLevel)
	}
	if n := with.Default.Levels(); without.Default.Levels() != n || n > 0 && without.Default.ID[0] != with.Default.ID[0] {
		t.Errorf("default hierarchy %+v, want %+v", without.Default, with.Default)
	}
}
