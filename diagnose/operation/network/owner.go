package network

import (
	"context"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/process"
)

// maxDescriptors bounds the search for the process of a socket: each descriptor costs a readlink of
// some microseconds.
const maxDescriptors = 200_000

// owner is a process that has a socket open.
type owner struct {
	pid  int
	comm string // safe to print
}

func (o owner) String() string {
	if o.pid == 0 {
		return "unknown process"
	}
	return process.TaskName(o.comm, o.pid)
}

// report adds the process to the results, if it is known.
func (o owner) report(r *operation.Finding) {
	if o.pid != 0 {
		r.Int("ownerPID", int64(o.pid))
		r.Text("ownerComm", o.comm)
	}
}

// owners finds the processes of sockets by the sockets' inodes: first among processes in the place,
// then among all others, because a descriptor may have been passed to them. If only is given, it
// searches only processes for which it returns true. whole is false if not all descriptors were
// searched.
func owners(h operation.Host, ctx context.Context, p *place, inodes map[uint32]bool, only func(pid int) bool) (found map[uint32]owner, whole bool) {
	found = map[uint32]owner{}
	if len(inodes) == 0 {
		return found, true
	}
	pids, err := h.FS.PIDs()
	if err != nil {
		return found, false
	}
	var near, far []int
	for _, pid := range pids {
		if only != nil && !only(pid) {
			continue
		}
		if inode, err := h.FS.NetNS(pid); err == nil && inode == p.inode {
			near = append(near, pid)
		} else if err == nil {
			far = append(far, pid)
		}
	}
	left := maxDescriptors
	for _, pid := range append(near, far...) {
		if len(found) == len(inodes) {
			break
		}
		if left <= 0 || ctx.Err() != nil {
			return found, false
		}
		left -= owned(h, pid, left, inodes, found)
	}
	return found, true
}

// owned records which of the sockets are among the first descriptors of a process, and returns how
// many descriptors it has.
func owned(h operation.Host, pid, first int, inodes map[uint32]bool, found map[uint32]owner) int {
	files, count, _ := h.FS.OpenFiles(pid, first) // none if it has ended
	for i := range files {
		inode, ok := socketInode(files[i].Target)
		if !ok || !inodes[inode] {
			continue
		}
		if _, dup := found[inode]; !dup {
			comm, _ := h.FS.Comm(pid)
			found[inode] = owner{pid: pid, comm: display.Safe(comm, maxName)}
		}
	}
	return count
}

// socketInode parses the target of a descriptor's link, "socket:[1234]".
func socketInode(link string) (uint32, bool) {
	s, ok := strings.CutPrefix(link, "socket:[")
	if !ok {
		return 0, false
	}
	s, ok = strings.CutSuffix(s, "]")
	n, err := strconv.ParseUint(s, 10, 32)
	if !ok || err != nil {
		return 0, false
	}
	return uint32(n), true
}

// ofPod returns a function that reports whether a cgroup belongs to a pod.
func ofPod(uid string) func(cgroup string) bool {
	return func(cgroup string) bool {
		a, _ := hostfs.ParseCgroupPath(cgroup)
		return a.Container.PodUID == uid
	}
}

// inPod returns a function that reports whether a process belongs to a pod.
func inPod(h operation.Host, uid string) func(pid int) bool {
	own := ofPod(uid)
	return func(pid int) bool {
		groups, err := h.FS.ProcCgroups(pid)
		return err == nil && slices.ContainsFunc(groups, func(g hostfs.ProcCgroup) bool { return own(g.Path) })
	}
}

// shared reports whether others use the network namespace of a pod, too: it is the node's, or has
// processes outside the pod. It skips processes that have ended, because they can't be checked.
func shared(h operation.Host, p *place) bool {
	if p.node {
		return true
	}
	pids, err := h.FS.PIDs()
	if err != nil {
		return true
	}
	own := inPod(h, p.pod)
	// A thread of the agent may have entered the namespace to inspect it; it does not count.
	self, _ := os.Readlink(h.FS.Path("/proc/self"))
	for _, pid := range pids {
		if strconv.Itoa(pid) == self {
			continue
		}
		if inode, err := h.FS.NetNS(pid); err != nil || inode != p.inode || own(pid) {
			continue
		}
		// Read it again: the process may have ended in between.
		if inode, err := h.FS.NetNS(pid); err == nil && inode == p.inode {
			return true
		}
	}
	return false
}
