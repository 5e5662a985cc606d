package observe

import (
	"fmt"
	"slices"
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/hostfs"
)

// findKubeletEvery is how often the node's processes are first scanned for kubelet while it has
// not been found. Each scan without success doubles the interval, up to findKubeletAtLeast.
const (
	findKubeletEvery   = 5 * time.Second
	findKubeletAtLeast = time.Minute
	maxKubelets        = 4 // several nodes on one machine, in tests
)

// process is a process of kubelet.
type process struct {
	pid   int
	start time.Duration
	netns uint32
}

// kubelets finds the processes that make the probes. It is used by one goroutine.
type kubelets struct {
	fs    hostfs.FS
	comms []string
	inPod func(uid string) bool
	found []process
	tried time.Time // time of the latest scan
	wait  time.Duration
	next  time.Time
}

// hurry resets the scan interval, because kubelet may be found now.
func (k *kubelets) hurry(now time.Time) {
	k.wait = 0
	k.next = later(now, k.tried.Add(findKubeletEvery))
}

// look updates the processes and reports whether they have changed.
func (k *kubelets) look(now time.Time) (changed bool, err error) {
	there := slices.DeleteFunc(slices.Clone(k.found), func(p process) bool {
		st, err := k.fs.Stat(p.pid)
		if err != nil || st.StartTime != p.start || !slices.Contains(k.comms, st.Comm) {
			return true
		}
		netns, err := k.fs.NetNS(p.pid)
		return err != nil || netns != p.netns
	})
	if len(there) > 0 && len(there) == len(k.found) || now.Before(k.next) && len(k.found) == 0 {
		return false, k.missing(len(k.found))
	}
	k.tried, k.wait = now, min(max(2*k.wait, findKubeletEvery), findKubeletAtLeast)
	k.next = now.Add(k.wait)
	found, err := k.find()
	if err != nil {
		return false, err
	}
	changed = !slices.Equal(found, k.found)
	if k.found = found; len(found) > 0 {
		k.wait = 0
	}
	return changed, k.missing(len(found))
}

func (k *kubelets) missing(n int) error {
	if n == 0 {
		return fmt.Errorf("no process has one of the names %v", k.comms)
	}
	return nil
}

// find scans the node's processes for kubelet.
func (k *kubelets) find() ([]process, error) {
	pids, err := k.fs.PIDs()
	if err != nil {
		return nil, fmt.Errorf("find kubelet: %w", err)
	}
	var found []process
	for _, pid := range pids {
		st, err := k.fs.Stat(pid)
		if err != nil || !slices.Contains(k.comms, st.Comm) || k.podOf(pid) {
			continue
		}
		netns, err := k.fs.NetNS(pid)
		if err != nil {
			return nil, fmt.Errorf("network namespace of %s: %w", display.Safe(st.Comm, 64), err)
		}
		found = append(found, process{pid, st.StartTime, netns})
		if len(found) == maxKubelets {
			break
		}
	}
	return found, nil
}

// podOf reports whether a process is in a pod of this node. Such a process is not kubelet,
// whatever its name.
func (k *kubelets) podOf(pid int) bool {
	groups, err := k.fs.ProcCgroups(pid)
	if err != nil {
		return false // the process has ended
	}
	for _, g := range groups {
		if a, ok := hostfs.ParseCgroupPath(g.Path); ok && a.Container.PodUID != "" && k.inPod(a.Container.PodUID) {
			return true
		}
	}
	return false
}

// namespaces returns the network namespaces of the processes, each once.
func (k *kubelets) namespaces() []uint32 {
	var out []uint32
	for _, p := range k.found {
		if !slices.Contains(out, p.netns) {
			out = append(out, p.netns)
		}
	}
	return out
}

// pid returns the PID of one of the processes; 0: there is none.
func (k *kubelets) pid() int {
	if len(k.found) == 0 {
		return 0
	}
	return k.found[0].pid
}
