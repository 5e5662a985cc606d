package vitals

import (
	"strconv"
	"strings"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/hostfs"
)

// maxComm bounds a process' name, which it chose itself.
const maxComm = 64

func taskName(t *hostfs.Stat) string {
	return display.Safe(t.Comm, maxComm) + "[" + strconv.Itoa(int(t.PID)) + "]"
}

// containerTop returns the topmost group that is a container's, and the container: what
// is below it the container has made itself.
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

// podAbove returns the group that a container's is in, where that is its pod's; empty: it
// is another.
func podAbove(path string) string {
	above := path[:max(0, strings.LastIndexByte(path, '/'))]
	if a, ok := hostfs.ParseCgroupPath(above); !ok || a.Container.PodUID == "" || a.Container.ID != "" {
		return ""
	}
	return above
}
