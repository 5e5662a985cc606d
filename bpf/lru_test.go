package bpf

import (
	"encoding/binary"
	"runtime"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// An LRU map keeps as many entries as its object declares, whichever CPUs they come from. The test
// can fail only on a machine with many CPUs.
func TestLRUMapsKeepWhatTheyDeclare(t *testing.T) {
	k := testKernel(t)
	for _, s := range Stems() {
		spec, err := s.spec()
		if err != nil {
			t.Fatal(err)
		}
		for name, declared := range spec.Maps {
			if declared.Type != ebpf.LRUHash {
				continue
			}
			t.Run(s.Name+"/"+name, func(t *testing.T) {
				l := openStem(t, s, k, nil)
				n, kept := int(declared.MaxEntries), 0
				keys := fillFromAllCPUs(t, l.maps[name], n)
				for _, key := range keys {
					v, err := l.maps[name].LookupBytes(key) // nil: not there
					if err != nil {
						t.Fatal(err)
					}
					if v != nil {
						kept++
					}
				}
				if kept != n {
					t.Errorf("%d CPUs: keeps %d of %d entries", runtime.NumCPU(), kept, n)
				}
			})
		}
	}
}

// fillFromAllCPUs adds n entries, from all CPUs in turn, and returns their keys.
func fillFromAllCPUs(t *testing.T, m *ebpf.Map, n int) (keys [][]byte) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its affinity
		var allowed unix.CPUSet
		err := unix.SchedGetaffinity(0, &allowed)
		value := make([]byte, m.ValueSize())
		per := (n + allowed.Count() - 1) / max(allowed.Count(), 1)
		for cpu := 0; err == nil && len(keys) < n; cpu++ {
			if !allowed.IsSet(cpu) {
				continue
			}
			var only unix.CPUSet
			only.Set(cpu)
			err = unix.SchedSetaffinity(0, &only)
			for range min(per, n-len(keys)) {
				key := make([]byte, m.KeySize())
				binary.NativeEndian.PutUint32(key, uint32(len(keys)+1))
				if err == nil {
					err = m.Put(key, value)
				}
				keys = append(keys, key)
			}
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return keys
}
