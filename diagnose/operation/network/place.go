package network

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/netlook"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/process"
)

const (
	// answer is the timeout of one request to the kernel about a namespace: listing a namespace
	// with 100,000 sockets takes 100 ms.
	answer = 2 * time.Second
	// search is the timeout for searching all namespaces for an address.
	search = 5 * time.Second
)

// errNetElsewhere is returned for an address that no device of this node has.
var errNetElsewhere = errors.New("no network namespace of this node has")

// placeParameters returns the parameters that select a network namespace: see findPlace.
func placeParameters() []operation.Parameter {
	return slices.Concat([]operation.Parameter{
		{Name: "podUID", Doc: "pod in the namespace; takes precedence over all others", Kind: operation.String},
		{Name: "netns", Doc: "inode of the namespace; takes precedence over pid and cgroup", Kind: operation.Integer, Max: 1<<32 - 1},
	}, process.PIDParameters(false, "process in the namespace"), []operation.Parameter{
		{Name: "cgroup", Doc: "cgroup with such a process, relative to the hierarchy's root", Kind: operation.String},
	})
}

// targetParameters returns the parameters that select the target of a connection: an address and
// port, and the namespace where the search starts.
func targetParameters(more ...operation.Parameter) []operation.Parameter {
	p := []operation.Parameter{
		{Name: "address", Doc: "IP address clients connect to; if the given namespace lacks it, all namespaces of the node are searched", Kind: operation.Address},
		{Name: "port", Doc: "TCP port that clients connect to", Kind: operation.Integer, Max: 1<<16 - 1},
	}
	return slices.Concat(p, placeParameters(), more)
}

// place is a network namespace to inspect.
type place struct {
	inode uint32
	pid   int    // a process in the namespace
	by    string // how it was found: "of process 811"
	pod   string // UID, if it is a pod's namespace
	node  bool   // it is the node's namespace
}

func (p *place) String() string { return fmt.Sprintf("network namespace %d (%s)", p.inode, p.by) }

// findPlace finds the namespace that the parameters select: by pod, inode, process or cgroup.
// Without any of these it is the node's own. It starts the report.
func findPlace(h operation.Host, v operation.Values) (*place, *operation.Finding, error) {
	var p *place
	var err error
	switch {
	case v["podUID"] != "":
		uid := v["podUID"]
		p, err = placeOf(h, "of pod "+uid, ofPod(uid))
		p.pod = uid
	case v["netns"] != "":
		p = &place{inode: uint32(v.Int("netns")), by: "by its inode"}
		if p.pid = netlook.NewNamespaces(h.FS, answer).Process(p.inode); p.pid == 0 {
			err = fmt.Errorf("network namespace %d: no process is in it", p.inode)
		}
	case v["pid"] != "":
		p, err = placeOfProcess(h, v)
		if err != nil && v["cgroup"] != "" {
			if of, other := placeOfCgroup(h, v["cgroup"]); other == nil {
				p, err = of, nil
			}
		}
	case v["cgroup"] != "":
		p, err = placeOfCgroup(h, v["cgroup"])
	default:
		p, err = findNode(h)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("find the network namespace: %w", err)
	}
	p.node = isNode(h, p.inode)
	return p, newReport(p), nil
}

// findNode returns the namespace of the node's init, or if access to that is denied, the one of
// this process, which is the same for an agent on the host network.
func findNode(h operation.Host) (*place, error) {
	inode, pid, err := netlook.NodeNamespace(h.FS)
	if err != nil {
		return nil, err
	}
	by := "the node's own"
	if pid != 1 {
		by = "the agent's own: process 1 is not accessible"
	}
	return &place{inode: inode, pid: pid, by: by, node: true}, nil
}

func isNode(h operation.Host, inode uint32) bool {
	node, err := findNode(h)
	return err == nil && node.inode == inode
}

func placeOfCgroup(h operation.Host, path string) (*place, error) {
	return placeOf(h, "of cgroup "+display.Safe(path, maxName), func(at string) bool { return below(at, path) })
}

// below reports whether the cgroup path is root or below it.
func below(path, root string) bool {
	root = strings.TrimSuffix(root, "/")
	return path == root || strings.HasPrefix(path, root+"/")
}

// placeOf finds the namespace of the oldest process in a cgroup. In a pod that process holds the
// pod's namespace; processes of namespaces that a container unshares are younger.
func placeOf(h operation.Host, by string, in func(cgroup string) bool) (*place, error) {
	var oldest hostfs.Stat
	p := &place{by: by}
	for pid, err := range processes(h, in) {
		if err != nil {
			return p, err
		}
		stat, err := h.FS.Stat(pid)
		if err != nil || p.pid != 0 && stat.StartTime >= oldest.StartTime {
			continue
		}
		// The process may have ended since, or be a zombie, which has no namespace.
		if inode, err := h.FS.NetNS(pid); err == nil {
			p.inode, p.pid, oldest = inode, pid, stat
		}
	}
	if p.pid == 0 {
		return p, fmt.Errorf("no process %s on this node", by)
	}
	return p, nil
}

// processes iterates over the PIDs of the processes in a cgroup.
func processes(h operation.Host, in func(cgroup string) bool) func(yield func(int, error) bool) {
	return func(yield func(int, error) bool) {
		pids, err := h.FS.PIDs()
		if err != nil {
			yield(0, fmt.Errorf("list processes: %w", err))
			return
		}
		for _, pid := range pids {
			groups, err := h.FS.ProcCgroups(pid)
			if err != nil {
				continue // it has ended
			}
			if slices.ContainsFunc(groups, func(g hostfs.ProcCgroup) bool { return in(g.Path) }) && !yield(pid, nil) {
				return
			}
		}
	}
}

// placeOfProcess finds the namespace of a process, after checking that its PID was not reused.
func placeOfProcess(h operation.Host, v operation.Values) (*place, error) {
	stat, err := process.Task(h, v)
	if err != nil {
		return nil, err
	}
	pid := int(stat.PID)
	inode, err := h.FS.NetNS(pid)
	if err != nil {
		return nil, fmt.Errorf("network namespace of process %d: %w", pid, err)
	}
	return &place{inode: inode, pid: pid, by: fmt.Sprintf("of process %d", pid)}, nil
}

// findTarget finds the namespace that has the address: the one that the parameters select,
// otherwise the only one of the node in which the address is local. It starts the report.
func findTarget(h operation.Host, v operation.Values) (*place, *operation.Finding, error) {
	return targetIn(h, v, false)
}

// findOwnTarget is findTarget, except that it finds only a pod's own namespace if the parameters
// name a pod.
func findOwnTarget(h operation.Host, v operation.Values) (*place, *operation.Finding, error) {
	return targetIn(h, v, true)
}

func targetIn(h operation.Host, v operation.Values, confine bool) (*place, *operation.Finding, error) {
	p, r, err := findPlace(h, v)
	if err != nil {
		return nil, nil, err
	}
	address := address(v, "address")
	if !address.IsValid() || address.IsLoopback() || address.IsUnspecified() {
		return p, r, nil
	}
	spaces := netlook.NewNamespaces(h.FS, answer)
	view, err := spaces.Open(p.inode, p.pid)
	if err != nil {
		return nil, nil, err
	}
	has, err := view.Has(address)
	view.Close()
	if err != nil || has {
		return p, r, err
	}
	if confine && p.pod != "" {
		return nil, nil, fmt.Errorf("%s is not an address of pod %s", address, p.pod)
	}
	found := spaces.Home(address, time.Now().Add(search))
	switch {
	case found.Several:
		return nil, nil, fmt.Errorf("%s is in several network namespaces of this node: set netns, podUID or pid", address)
	case !found.Whole:
		return nil, nil, fmt.Errorf("not all network namespaces could be searched for %s within %s", address, search)
	case found.Inode == 0:
		return nil, nil, fmt.Errorf("%w %s", errNetElsewhere, address)
	}
	p = &place{inode: found.Inode, pid: spaces.Process(found.Inode), by: "has " + address.String(), node: isNode(h, found.Inode)}
	if p.pid == 0 {
		return nil, nil, fmt.Errorf("%s no longer has a process", p)
	}
	return p, newReport(p), nil
}

// address returns an address in the form that sockets and routes use. It drops a zone, because the
// device that a zone names depends on the namespace.
func address(v operation.Values, name string) netip.Addr { return v.Addr(name).Unmap().WithZone("") }

// at returns the address and port that a run is about; port 0 if none is given.
func at(v operation.Values) netip.AddrPort {
	return netip.AddrPortFrom(address(v, "address"), uint16(v.Int("port")))
}

// open opens the namespace of a place.
func open(h operation.Host, p *place) (*netlook.View, error) {
	return netlook.NewNamespaces(h.FS, answer).Open(p.inode, p.pid)
}
