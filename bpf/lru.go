package bpf

import "github.com/cilium/ebpf"

// lruBatch is how many free elements a CPU reserves at once (LOCAL_FREE_TARGET of
// kernel/bpf/bpf_lru_list.c). No other CPU can use those.
const lruBatch = 128

// growLRU enlarges an LRU map so that it always holds the entries that its object declares. When
// other CPUs have reserved the last free elements, the kernel evicts live entries without counting
// them: with 64 CPUs a map of 8192 may lose entries while it is almost empty. With this the maps of
// sockfail grow from 2.4 MiB to 17 MiB, two thirds of it for groups. Kernels since d4adf1c9ee77
// (v6.16) reserve smaller batches, half of the map at most.
func growLRU(spec *ebpf.MapSpec, cpus int, k *Kernel) {
	if spec.Type != ebpf.LRUHash {
		return
	}
	more := lruBatch * uint32(cpus)
	if k.HasField("bpf_lru", "target_free") {
		more = min(more, spec.MaxEntries)
	}
	spec.MaxEntries += more
}
