package hostfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
)

// CgroupMemoryUse is what a memory cgroup and its descendants use, in bytes, with event counts.
type CgroupMemoryUse struct {
	V1           bool
	Usage        uint64
	Peak         uint64 // maximum of Usage; 0: unknown (v2 before 5.19)
	Limit        uint64 // 0: no limit of its own
	High         uint64 // v2: above it tasks are throttled; 0: none
	Swap         uint64
	SwapLimit    uint64 // v2: of swap alone; v1: of memory and swap together; 0: none
	Anon         uint64
	File         uint64 // page cache, tmpfs too
	Shmem        uint64
	InactiveFile uint64 // page cache that is reclaimed first
	Kernel       uint64 // stacks, page tables, slab, per-CPU, sockets; see [CgroupMemoryUse.KernelKnown]
	KernelKnown  bool
	Slab         uint64 // v2
	Reclaimable  uint64 // reclaimable part of Slab; not available on v1
	Sock         uint64
	LimitHits    uint64 // times that usage was held at the limit
	OOMs         uint64 // times that nothing could be reclaimed; not counted on v1
	OOMKills     uint64 // processes killed for memory; on v2 also in descendants
}

// WorkingSet returns usage without the page cache that is reclaimed first, as kubelet reports it.
func (m *CgroupMemoryUse) WorkingSet() uint64 { return m.Usage - min(m.Usage, m.InactiveFile) }

// Held returns the memory that can't be freed without a kill: anonymous memory, tmpfs, and kernel
// memory except reclaimable slab.
func (m *CgroupMemoryUse) Held() uint64 {
	return m.Anon + m.Shmem + m.Kernel - min(m.Kernel, m.Reclaimable)
}

// CgroupMemoryUse reads the memory cgroup at path, below the memory hierarchy's root. It returns
// [fs.ErrNotExist] if the cgroup is gone.
func (f FS) CgroupMemoryUse(l CgroupLayout, path string) (CgroupMemoryUse, error) {
	dir, v1, err := l.dir("memory", path)
	if err != nil {
		return CgroupMemoryUse{}, err
	}
	if v1 {
		return f.memoryUseV1(dir)
	}
	return f.memoryUseV2(dir)
}

// CgroupMemoryLimit reads the limit of the memory cgroup at path itself, in bytes; 0: none, as for
// the root of v2, which has no such file. It returns [fs.ErrNotExist] if the cgroup is gone.
func (f FS) CgroupMemoryLimit(l CgroupLayout, path string) (uint64, error) {
	dir, v1, err := l.dir("memory", path)
	if err != nil {
		return 0, err
	}
	if _, err := os.Stat(f.Path(dir)); err != nil {
		return 0, err
	}
	if v1 {
		return f.limit(dir + "/memory.limit_in_bytes")
	}
	return f.limit(dir + "/memory.max")
}

// unlimited is the smallest value that v1 shows for "no limit": the maximum number of pages in
// bytes, which depends on the page size.
const unlimited = 1 << 62

// limit reads a file with a number, "max", or v1's number for "max". It returns 0 for no limit,
// also if the kernel does not have the file.
func (f FS) limit(p string) (uint64, error) {
	s, err := f.readValue(p)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, nil
	case err != nil || s == "max":
		return 0, err
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("parse %s: %w", f.Path(p), err)
	}
	if n >= unlimited {
		return 0, nil
	}
	return n, nil
}

// optional reads a number from a file that some kernels lack; it returns 0 then.
func (f FS) optional(p string) (uint64, error) {
	n, err := f.readUint(p)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	return n, err
}

func (f FS) memoryUseV1(dir string) (m CgroupMemoryUse, err error) {
	m = CgroupMemoryUse{V1: true}
	if m.Usage, err = f.readUint(dir + "/memory.usage_in_bytes"); err != nil {
		return m, err
	}
	var memsw uint64
	errs := make([]error, 9)
	m.Limit, errs[0] = f.limit(dir + "/memory.limit_in_bytes")
	m.Peak, errs[1] = f.optional(dir + "/memory.max_usage_in_bytes")
	m.SwapLimit, errs[2] = f.limit(dir + "/memory.memsw.limit_in_bytes")
	memsw, errs[3] = f.optional(dir + "/memory.memsw.usage_in_bytes")
	m.LimitHits, errs[4] = f.optional(dir + "/memory.failcnt")
	errs[5] = f.readKeyed(dir+"/memory.oom_control", map[string]*uint64{"oom_kill": &m.OOMKills})
	errs[6] = f.readKeyed(dir+"/memory.stat", map[string]*uint64{
		"total_rss": &m.Anon, "total_cache": &m.File, "total_shmem": &m.Shmem, "total_inactive_file": &m.InactiveFile, "total_swap": &m.Swap,
	})
	m.Sock, errs[7] = f.optional(dir + "/memory.kmem.tcp.usage_in_bytes")
	m.Kernel, errs[8] = f.optional(dir + "/memory.kmem.usage_in_bytes")
	m.KernelKnown = f.exists(dir + "/memory.kmem.usage_in_bytes")
	if m.Swap == 0 && memsw > m.Usage {
		m.Swap = memsw - m.Usage
	}
	return m, errors.Join(errs...)
}

func (f FS) memoryUseV2(dir string) (m CgroupMemoryUse, err error) {
	if m.Usage, err = f.readUint(dir + "/memory.current"); err != nil {
		return m, err
	}
	var unreclaimable, stack, tables, percpu, sec uint64
	errs := make([]error, 7)
	m.Limit, errs[0] = f.limit(dir + "/memory.max")
	m.High, errs[1] = f.limit(dir + "/memory.high")
	m.Peak, errs[2] = f.optional(dir + "/memory.peak")
	m.Swap, errs[3] = f.optional(dir + "/memory.swap.current")
	m.SwapLimit, errs[4] = f.limit(dir + "/memory.swap.max")
	errs[5] = f.readKeyed(dir+"/memory.stat", map[string]*uint64{
		"anon": &m.Anon, "file": &m.File, "shmem": &m.Shmem, "inactive_file": &m.InactiveFile, "kernel": &m.Kernel,
		"slab_reclaimable": &m.Reclaimable, "slab_unreclaimable": &unreclaimable, "sock": &m.Sock,
		"kernel_stack": &stack, "pagetables": &tables, "percpu": &percpu, "sec_pagetables": &sec,
	})
	errs[6] = f.readKeyed(dir+"/memory.events", map[string]*uint64{
		"max": &m.LimitHits, "oom": &m.OOMs, "oom_kill": &m.OOMKills,
	})
	m.Slab, m.KernelKnown = m.Reclaimable+unreclaimable, true
	// "kernel" exists from 5.18 on, and includes these parts but not sockets.
	if parts := m.Slab + stack + tables + percpu + sec; m.Kernel < parts {
		m.Kernel = parts
	}
	m.Kernel += m.Sock
	return m, errors.Join(errs...)
}

// MemoryCgroup returns the path of a process' memory cgroup: on v2 the lowest with that controller.
func (f FS) MemoryCgroup(l CgroupLayout, pid int) (string, error) {
	groups, err := f.ProcCgroups(pid)
	if err != nil {
		return "", err
	}
	p, ok := l.Group(groups, "memory")
	if !ok {
		return "", fmt.Errorf("process %d: no memory cgroup: %w", pid, fs.ErrNotExist)
	}
	if _, v1 := l.Controllers["memory"]; v1 {
		return p, nil
	}
	for ; ; p = path.Dir(p) {
		dir, _, err := l.dir("memory", p)
		if err != nil {
			return "", err
		}
		if p == "/" || f.exists(dir+"/memory.current") {
			return p, nil
		}
	}
}

// CgroupProcs returns the processes in a memory cgroup and its descendants, at most limit of them;
// more reports whether there are others, perhaps only ones that have no number here: cgroup v2 shows
// processes of other PID namespaces as 0.
func (f FS) CgroupProcs(l CgroupLayout, cgroup string, limit int) (pids []int, more bool, err error) {
	dir, _, err := l.dir("memory", cgroup)
	if err != nil {
		return nil, false, err
	}
	const maxGroups = 4096
	dirs := []string{dir}
	for i := 0; i < len(dirs); i++ {
		s, err := f.read(dirs[i]+"/cgroup.procs", largeFile)
		if err != nil {
			if i == 0 {
				return nil, false, err
			}
			continue // removed meanwhile, or a threaded cgroup on v2
		}
		for line := range strings.Lines(s) {
			pid, err := strconv.Atoi(strings.TrimSpace(line))
			if err != nil || pid <= 0 {
				more = more || err == nil
				continue
			}
			if len(pids) == limit {
				return pids, true, nil
			}
			pids = append(pids, pid)
		}
		children, _ := f.folders(dirs[i]) // removed meanwhile
		for _, name := range children {
			if len(dirs) == maxGroups {
				more = true
				break
			}
			dirs = append(dirs, dirs[i]+"/"+name)
		}
	}
	return pids, more, nil
}

// CgroupChildren returns the names of the direct children of a memory cgroup.
func (f FS) CgroupChildren(l CgroupLayout, cgroup string) ([]string, error) {
	dir, _, err := l.dir("memory", cgroup)
	if err != nil {
		return nil, err
	}
	return f.folders(dir)
}

// folders returns the names of the folders in a folder.
func (f FS) folders(dir string) (names []string, err error) {
	entries, err := os.ReadDir(f.Path(dir))
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, err
}
