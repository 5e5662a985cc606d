package event

import (
	"net/netip"
	"strconv"
)

// Task identifies one kernel task (thread) at the time of the event.
type Task struct {
	PID       uint32   `json:"pid"`                 // thread id in the initial pid namespace
	TGID      uint32   `json:"tgid"`                // process id in the initial pid namespace
	Comm      string   `json:"comm"`                // at most 15 bytes, escaped: no control characters
	StartTime Duration `json:"startTime,omitempty"` // since boot; with PID it identifies the task
	UID       uint32   `json:"uid"`
}

// ID identifies the task uniquely since boot ("811@73.12s"): pids are reused.
func (t *Task) ID() string {
	b := strconv.AppendUint(make([]byte, 0, 32), uint64(t.PID), 10)
	b = append(b, '@')
	return string(append(b, t.StartTime.String()...))
}

// String returns "comm[pid]", or "" for nil.
func (t *Task) String() string {
	if t == nil {
		return ""
	}
	return t.Comm + "[" + strconv.FormatUint(uint64(t.PID), 10) + "]"
}

// Cgroup is a control group, named from the kernel at event time, so that one
// that is already removed still has its name.
type Cgroup struct {
	ID   uint64 `json:"id"`   // 64-bit kernfs id
	Path string `json:"path"` // from the hierarchy's root ("/kubepods/…"); starts with "…/" where the top is cut off
}

// Container is what the cgroup path says about the container of a task.
type Container struct {
	ID      string `json:"id"`                // full runtime id, 64 hex digits usually
	Runtime string `json:"runtime,omitempty"` // containerd, cri-o, docker, podman; empty: unknown
	PodUID  string `json:"podUID,omitempty"`  // with dashes, as in the API
	QoS     string `json:"qos,omitempty"`     // guaranteed, burstable, besteffort

	// Names come from the runtime; empty if it does not provide them.
	Name         string `json:"name,omitempty"` // in the pod; unlike ID the same after a restart
	PodName      string `json:"podName,omitempty"`
	PodNamespace string `json:"podNamespace,omitempty"`
}

// Mount is one place at which a device's filesystem is mounted.
type Mount struct {
	Path   string `json:"path"`
	FSType string `json:"fsType"`
}

// Device is a block device.
type Device struct {
	Major  uint32  `json:"major"`
	Minor  uint32  `json:"minor"`
	Name   string  `json:"name"`             // kernel name ("nvme0n1p2"); "MAJ:MIN" where the device is gone
	Parent string  `json:"parent,omitempty"` // whole disk of a partition; disk of an NVMe path
	Mounts []Mount `json:"mounts,omitempty"` // bounded
}

// Conn is the socket pair of one TCP connection.
type Conn struct {
	Src   netip.AddrPort `json:"src"`
	Dst   netip.AddrPort `json:"dst"`
	NetNS uint32         `json:"netns"` // inode of the opener's network namespace
}
