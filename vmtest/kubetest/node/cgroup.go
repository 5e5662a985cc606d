package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const cgroupMount = "/sys/fs/cgroup"

// groups holds the node's cgroup in each hierarchy of the machine.
type groups struct {
	name string   // name below each hierarchy's root
	all  []string // folders
	v2   string   // the cgroup2 folder
}

// findGroups returns the paths of a node's cgroups, without creating them.
func findGroups(name string) (*groups, error) {
	g := &groups{name: name}
	if isCgroup2(cgroupMount) {
		g.v2 = filepath.Join(cgroupMount, name)
		g.all = []string{g.v2}
		return g, nil
	}
	entries, err := os.ReadDir(cgroupMount)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		dir := filepath.Join(cgroupMount, e.Name())
		if !e.IsDir() {
			continue // a link such as cpu -> cpu,cpuacct
		}
		g.all = append(g.all, filepath.Join(dir, name))
		if isCgroup2(dir) {
			g.v2 = filepath.Join(dir, name)
		}
	}
	if g.v2 == "" {
		return nil, fmt.Errorf("%s has no cgroup2 hierarchy", cgroupMount)
	}
	return g, nil
}

func isCgroup2(dir string) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC
}

// make creates the cgroups.
func (g *groups) make() error {
	for _, dir := range g.all {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		// A cpuset accepts no processes before these are set; only cgroup v1 requires them.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			if dir == g.v2 {
				continue
			}
			value, err := os.ReadFile(filepath.Join(filepath.Dir(dir), file))
			if errors.Is(err, os.ErrNotExist) {
				continue
			}
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, file), value, 0o644); err != nil {
				return err
			}
		}
		// Give pods priority over tests that run in parallel: otherwise a probe times out after a
		// second.
		for file, most := range map[string]string{"cpu.shares": "262144", "cpu.weight": "10000"} {
			path := filepath.Join(dir, file)
			if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
				continue
			}
			if err := os.WriteFile(path, []byte(most), 0o644); err != nil {
				return err
			}
		}
	}
	// The node's own programs get a group of their own: on cgroup2 a group whose children have
	// controllers cannot contain processes.
	return os.Mkdir(g.programs(), 0o755)
}

// processes returns the processes in the cgroup of a container and below it.
func (g *groups) processes(container string) ([]int, error) {
	var all []int
	err := filepath.WalkDir(g.v2, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Base(path) != "cgroup.procs" || container == "" || !strings.Contains(filepath.Dir(path), container) {
			return nil //nolint:nilerr // a group that goes meanwhile is not the one
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil //nolint:nilerr // likewise
		}
		for field := range strings.FieldsSeq(string(text)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			all = append(all, pid)
		}
		return nil
	})
	return all, err
}

// programs returns the cgroup of the node's programs, in which all their children start.
func (g *groups) programs() string { return filepath.Join(g.v2, "programs") }

// cleanUp is the script that runs when a node, or the process that started it, has ended. It kills
// the processes in the cgroups $1 and following, and removes these cgroups and then the state
// folder $0. At that point the mounts are gone, because no process is left in their namespace.
const cleanUp = `
left=
i=0
while [ $i -lt 100 ]; do
	i=$((i + 1))
	left=
	for g; do
		[ -d "$g" ] || continue
		# Kills all below at once; from Linux 5.14 on.
		{ echo 1 >"$g/cgroup.kill"; } 2>/dev/null
		for p in $(find "$g" -name cgroup.procs -exec cat {} + 2>/dev/null); do kill -9 "$p" 2>/dev/null; done
		find "$g" -depth -type d -exec rmdir {} + 2>/dev/null
		[ ! -d "$g" ] || left="$left $g"
	done
	if [ -z "$left" ] && rm -rf --one-file-system -- "$0" 2>/dev/null; then exit 0; fi
	sleep 0.1
done
echo "left after 10 s:$left $0" 2>/dev/null
exit 1
`
