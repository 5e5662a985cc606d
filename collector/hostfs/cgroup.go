package hostfs

import (
	"encoding/hex"
	"strings"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
)

const (
	// cutTop begins a cgroup path whose upper levels were not captured.
	cutTop = "…/"
	// cutName is used as the unknown parent of the topmost captured level. No cgroup has a "/" in
	// its name, so none can imitate it.
	cutName = cutTop
	// maxCgroupPath is PATH_MAX: the kernel shows no longer path. Of a longer one only the top is
	// parsed, because containers are near the top.
	maxCgroupPath = 4096
	// maxUnitName is UNIT_NAME_MAX of systemd.
	maxUnitName = 255
)

// Attribution is the owner that a cgroup path names: a container or, outside, a systemd unit.
type Attribution struct {
	// Container is zero outside containers. ID is empty for the cgroup of a whole pod, or if the path
	// contains only a part of the ID. Runtime is empty if the path does not name the runtime, QoS if
	// the level that names it is missing.
	Container event.Container
	// Unit is the innermost systemd service or scope, with systemd's escapes (\x2d) decoded.
	Unit string
}

// ParseCgroupPath returns the owner of the cgroup at path. path contains the names from the
// hierarchy's root to the cgroup ("/kubepods/…"), or "…/" and the lower names if the top is
// unknown. It supports both cgroup drivers of kubelet, cgroup v1 and v2, and the naming of
// containerd, CRI-O, Docker and Podman.
//
// Where Kubernetes runs inside a container (kind) the innermost pod wins, because the inner cluster
// knows that one. Whatever a container creates below its own cgroup (systemd in a pod, crun's
// "container", Docker in a pod) belongs to that container.
//
// It returns false if the path names neither a container nor a unit.
func ParseCgroupPath(path string) (Attribution, bool) {
	w := walk{parent: "", grand: ""}
	if rest, ok := strings.CutPrefix(path, cutTop); ok {
		path, w.parent, w.grand = rest, cutName, cutName
	}
	if len(path) > maxCgroupPath {
		path = path[:maxCgroupPath]
		path = path[:strings.LastIndexByte(path, '/')+1] // the name at the cut is incomplete
	}
	for path != "" {
		var name string
		name, path, _ = strings.Cut(path, "/")
		if name != "" {
			w.step(name)
		}
	}
	if w.container != (event.Container{}) {
		return Attribution{Container: w.container}, true
	}
	if w.unit == "" {
		return Attribution{}, false
	}
	return Attribution{Unit: display.Safe(unescapeUnit(w.unit), maxUnitName)}, true
}

// walk is the state of ParseCgroupPath while it descends.
type walk struct {
	parent, grand string // the names above; cutName where unknown
	container     event.Container
	cut           bool // in a container of which only the pod is known
	unit          string
}

func (w *walk) step(name string) {
	defer func() { w.grand, w.parent = w.parent, name }()

	if slice, rest, ok := strings.Cut(name, ":"); ok && w.literalSpec(slice, rest) {
		return
	}
	if uid, qos, ok := podSlice(name); ok {
		w.pod(uid, qos)
		return
	}
	if uid, qos, ok := w.podDirectory(name); ok {
		w.pod(uid, qos)
		return
	}
	if w.container.ID != "" || w.cut {
		return // below a container: belongs to it
	}
	if id, runtime, ok := containerName(name, w.parent, w.container.PodUID != ""); ok {
		w.container.ID, w.container.Runtime = id, runtime
		return
	}
	if isUnit(name) {
		w.unit = name
	}
}

// pod enters a pod.
func (w *walk) pod(uid, qos string) {
	w.container, w.cut = event.Container{PodUID: uid, QoS: qos}, false
}

// literalSpec parses "slice:prefix:id", the form in which the systemd driver requests a cgroup. It
// becomes the literal name if the runtime does not use the systemd driver. rest follows the slice;
// a captured name may end within the id.
func (w *walk) literalSpec(slice, rest string) bool {
	uid, qos, pod := podSlice(slice)
	if pod {
		w.pod(uid, qos)
	}
	prefix, id, _ := strings.Cut(rest, ":")
	if !isContainerID(id) {
		w.cut = w.cut || pod
		return pod
	}
	if w.container.ID == "" && !w.cut {
		w.container.ID, w.container.Runtime = id, runtimeOf(prefix+"-")
	}
	return true
}

// podDirectory parses the cgroupfs driver's form: kubepods/pod<uid> or kubepods/<qos>/pod<uid>.
func (w *walk) podDirectory(name string) (uid, qos string, ok bool) {
	uid, ok = strings.CutPrefix(name, "pod")
	if !ok || !isPodUID(uid, '-') {
		return "", "", false
	}
	switch w.parent {
	case cutName:
		return uid, "", true
	case "kubepods":
		return uid, "guaranteed", true
	case "burstable", "besteffort":
		return uid, w.parent, w.grand == "kubepods" || w.grand == cutName
	}
	return "", "", false
}

// podSlice parses the systemd driver's form, in which a slice repeats the names of its parents:
// [<cgroup root>-]kubepods[-<qos>]-pod<uid>.slice.
func podSlice(name string) (uid, qos string, ok bool) {
	name, ok = strings.CutSuffix(name, ".slice")
	if !ok {
		return "", "", false
	}
	i := strings.LastIndex(name, "kubepods-")
	if i < 0 || i > 0 && name[i-1] != '-' {
		return "", "", false
	}
	name, qos = name[i+len("kubepods-"):], "guaranteed"
	if rest, found := strings.CutPrefix(name, "burstable-"); found {
		name, qos = rest, "burstable"
	} else if rest, found := strings.CutPrefix(name, "besteffort-"); found {
		name, qos = rest, "besteffort"
	}
	uid, ok = strings.CutPrefix(name, "pod")
	if !ok || !isPodUID(uid, '_') {
		return "", "", false
	}
	return strings.ReplaceAll(uid, "_", "-"), qos, true
}

// containerName parses <prefix>-<id>.scope (systemd), <prefix>-<id> and <id> (cgroupfs). An unknown
// prefix is accepted only inside a pod.
func containerName(name, parent string, inPod bool) (id, runtime string, ok bool) {
	name, scope := strings.CutSuffix(name, ".scope")
	if len(name) < containerIDLen {
		return "", "", false
	}
	prefix, id := name[:len(name)-containerIDLen], name[len(name)-containerIDLen:]
	if !isContainerID(id) {
		return "", "", false
	}
	if prefix == "" {
		if parent == "docker" {
			return id, "docker", true
		}
		return id, "", !scope
	}
	runtime = runtimeOf(prefix)
	return id, runtime, runtime != "" || inPod && scope && strings.HasSuffix(prefix, "-")
}

// runtimeOf returns the runtime that puts this prefix before a container's id, or "". The monitor
// process (conmon) has a cgroup of its own and counts as part of its container.
func runtimeOf(prefix string) string {
	switch prefix {
	case "cri-containerd-", "nerdctl-":
		return "containerd"
	case "crio-", "crio-conmon-":
		return "cri-o"
	case "docker-":
		return "docker"
	case "libpod-", "libpod-conmon-", "libpod-payload-":
		return "podman"
	}
	return ""
}

const containerIDLen = 64

// isContainerID reports whether s is the 64 lower-case hex digits that all these runtimes use.
func isContainerID(s string) bool { return len(s) == containerIDLen && isHex(s) }

// isPodUID reports whether s is 8-4-4-4-12 hex digits with the given separator, or the 32 without
// separator that kubelet gives to static pods. A static pod's UID is the hash of its manifest. In the
// API it is the annotation kubernetes.io/config.hash of the mirror pod, whose own UID differs.
func isPodUID(s string, sep byte) bool {
	switch len(s) {
	case 32:
		return isHex(s)
	case 36:
		return s[8] == sep && s[13] == sep && s[18] == sep && s[23] == sep &&
			isHex(s[:8]) && isHex(s[9:13]) && isHex(s[14:18]) && isHex(s[19:23]) && isHex(s[24:])
	}
	return false
}

func isHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// isUnit reports whether a cgroup is a service or scope. init.scope contains only the manager
// itself, inside the manager's unit (user@1000.service).
func isUnit(name string) bool {
	if len(name) > maxUnitName || name == "init.scope" {
		return false
	}
	i := strings.LastIndexByte(name, '.')
	return i > 0 && (name[i:] == ".service" || name[i:] == ".scope")
}

// unescapeUnit decodes systemd's escapes: \xHH, and "_" (cg_escape) before a kernel file's name.
func unescapeUnit(s string) string {
	s = strings.TrimPrefix(s, "_")
	i := strings.Index(s, `\x`)
	if i < 0 {
		return s
	}
	b := make([]byte, 0, len(s))
	for ; i >= 0; i = strings.Index(s, `\x`) {
		b = append(b, s[:i]...)
		if len(s) < i+4 || !isHex(s[i+2:i+4]) {
			b, s = append(b, `\x`...), s[i+2:]
			continue
		}
		b, _ = hex.AppendDecode(b, []byte(s[i+2:i+4]))
		s = s[i+4:]
	}
	return string(append(b, s...))
}
