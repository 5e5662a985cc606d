package bpf

import "github.com/cilium/ebpf"

// lruBatch is how many free elements a CPU takes for itself at once
// (LOCAL_FREE_TARGET of kernel/bpf/bpf_lru_list.c). No other CPU gets at those.
const lruBatch = 128

// growLRU makes an LRU map large enough for the entries that its object declares. Where
// the last free elements are at other CPUs, the kernel evicts live entries, and counts
// nothing: with 64 CPUs a map of 8192 may lose its entries when it is almost empty.
// The maps of sockfail, 2.4 MiB as declared, then take 17 MiB, two thirds of it for groups.
// Kernels since d4adf1c9ee77 (v6.16) take smaller batches, half of the map at most.
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
