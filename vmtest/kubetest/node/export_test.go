package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// PauseImage is there without a test's doing.
const PauseImage = pauseImage

// Dir returns the state folder.
func (n *Node) Dir() string { return n.dir }

// Groups returns the cgroups.
func (n *Node) Groups() []string { return n.groups.all }

// Inside returns the processes in the node's cgroup.
func (n *Node) Inside() []int {
	var all []int
	_ = filepath.Walk(n.groups.v2, func(path string, _ os.FileInfo, _ error) error {
		if filepath.Base(path) == "cgroup.procs" {
			text, _ := os.ReadFile(path)
			for field := range strings.FieldsSeq(string(text)) {
				pid, _ := strconv.Atoi(field)
				all = append(all, pid)
			}
		}
		return nil
	})
	return all
}

// Alive reports whether a process runs: one that has ended stays as a zombie until it
// is reaped.
func Alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}
