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

// maxDescriptors bounds the search for the process of a socket: each costs a readlink
// of some microseconds.
const maxDescriptors = 200_000

// owner is a process that has a descriptor of a socket.
type owner struct {
	pid  int
	comm string // fit to be shown
}

func (o owner) String() string {
	if o.pid == 0 {
		return "no process known"
	}
	return process.TaskName(o.comm, o.pid)
}

// report keeps a process that is known.
func (o owner) report(r *operation.Finding) {
	if o.pid != 0 {
		r.Int("ownerPID", int64(o.pid))
		r.Text("ownerComm", o.comm)
	}
}

// owners finds the processes of sockets by the sockets' inodes, first among those in
// the place, then among the others (a descriptor may have been handed over), or, if only
// is given, among the processes for which it is true. whole is false where the search
// ended before all descriptors were seen.
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

// owned notes which of the sockets a process has among its first descriptors, and returns
// how many it has in all.
func owned(h operation.Host, pid, first int, inodes map[uint32]bool, found map[uint32]owner) int {
	files, count, _ := h.FS.OpenFiles(pid, first) // of one that has ended there are none
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

// socketInode reads the target of a descriptor's link, "socket:[1234]".
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

// ofPod reports of a cgroup whether it is a pod's.
func ofPod(uid string) func(cgroup string) bool {
	return func(cgroup string) bool {
		a, _ := hostfs.ParseCgroupPath(cgroup)
		return a.Container.PodUID == uid
	}
}

// inPod reports of a process whether it is one of a pod.
func inPod(h operation.Host, uid string) func(pid int) bool {
	own := ofPod(uid)
	return func(pid int) bool {
		groups, err := h.FS.ProcCgroups(pid)
		return err == nil && slices.ContainsFunc(groups, func(g hostfs.ProcCgroup) bool { return own(g.Path) })
	}
}

// shared reports whether the namespace of a pod is also that of others: the node's, or
// one with processes outside the pod. A process that has ended can't be checked; then the
// others decide.
func shared(h operation.Host, p *place) bool {
	if p.node {
		return true
	}
	pids, err := h.FS.PIDs()
	if err != nil {
		return true
	}
	own := inPod(h, p.pod)
	// A thread of the agent may be there to look around; the agent does not live there.
	self, _ := os.Readlink(h.FS.Path("/proc/self"))
	for _, pid := range pids {
		if strconv.Itoa(pid) == self {
			continue
		}
		if inode, err := h.FS.NetNS(pid); err != nil || inode != p.inode || own(pid) {
			continue
		}
		// Read again: it may have ended between the two looks.
		if inode, err := h.FS.NetNS(pid); err == nil && inode == p.inode {
			return true
		}
	}
	return false
}
