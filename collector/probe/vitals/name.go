package vitals

import (
	"strconv"
	"strings"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/hostfs"
)

// maxComm bounds a process' name, which the process itself sets.
const maxComm = 64

func taskName(t *hostfs.Stat) string {
	return display.Safe(t.Comm, maxComm) + "[" + strconv.Itoa(int(t.PID)) + "]"
}

// containerTop returns the topmost group of a container, and the container's ID. The container
// itself has created the groups below.
func containerTop(path string) (top, id string) {
	for end := len(path); end > 0; end = strings.LastIndexByte(path[:end], '/') {
		a, ok := hostfs.ParseCgroupPath(path[:end])
		if !ok || a.Container.ID == "" || id != "" && a.Container.ID != id {
			break
		}
		top, id = path[:end], a.Container.ID
	}
	return top, id
}

// podAbove returns the parent of a container's group if it is its pod's, else "".
func podAbove(path string) string {
	above := path[:max(0, strings.LastIndexByte(path, '/'))]
	if a, ok := hostfs.ParseCgroupPath(above); !ok || a.Container.PodUID == "" || a.Container.ID != "" {
		return ""
	}
	return above
}
