package hostfs

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// NetNamespace is a network namespace and a process in it.
type NetNamespace struct {
	Inode uint32
	PID   int // the lowest
}

// parseNetNS parses the target of the link /proc/PID/ns/net, "net:[4026531840]".
func parseNetNS(link string) (uint32, error) {
	s, ok := strings.CutPrefix(link, "net:[")
	if !ok {
		return 0, fmt.Errorf("ns/net: %w", errSyntax)
	}
	if s, ok = strings.CutSuffix(s, "]"); !ok {
		return 0, fmt.Errorf("ns/net: %w", errSyntax)
	}
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("ns/net: %w", err)
	}
	return uint32(n), nil
}

// NetNS returns the inode of a process' network namespace, which identifies it on this node while
// it exists.
func (f FS) NetNS(pid int) (uint32, error) {
	link, err := os.Readlink(f.Path(procPath(pid, "ns/net")))
	if err != nil {
		return 0, err
	}
	return parseNetNS(link)
}

// NetNamespaces returns the network namespaces that have processes, ordered by their lowest pid, at
// most limit of them. Processes that end meanwhile or can't be read are skipped; namespaces without
// processes are not found.
func (f FS) NetNamespaces(limit int) ([]NetNamespace, error) {
	pids, err := f.PIDs()
	if err != nil {
		return nil, err
	}
	seen := make(map[uint32]struct{})
	var out []NetNamespace
	for _, pid := range pids {
		if len(out) >= limit {
			break
		}
		inode, err := f.NetNS(pid)
		if err != nil {
			continue
		}
		if _, dup := seen[inode]; !dup {
			seen[inode] = struct{}{}
			out = append(out, NetNamespace{Inode: inode, PID: pid})
		}
	}
	return out, nil
}

// PIDs returns the pids of all processes, sorted.
func (f FS) PIDs() ([]int, error) {
	dir, err := os.Open(f.Path("/proc"))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	pids := make([]int, 0, len(names))
	for _, name := range names {
		if pid, err := strconv.ParseUint(name, 10, 31); err == nil {
			pids = append(pids, int(pid))
		}
	}
	slices.SortFunc(pids, cmp.Compare)
	return pids, nil
}
