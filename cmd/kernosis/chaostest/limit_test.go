package chaostest_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// limit is what a cgroup does not exceed: a file of a controller (cgroup v1), and its content.
type limit struct{ controller, file, content string }

// tenMillis is the CPU limit 10m of a container.
var tenMillis = limit{"cpu", "cpu.cfs_quota_us", "1000"} //nolint:gochecknoglobals // a constant

// slowWrites is a disk that does few writes a second.
func slowWrites(disk string) limit {
	text, _ := os.ReadFile(filepath.Join("/sys/block", disk, "dev"))
	return limit{"blkio", "blkio.throttle.write_iops_device", strings.TrimSpace(string(text)) + " 5"}
}

// confine moves processes into a cgroup of their own with a limit. Where there is no such hierarchy, it only
// says so.
func (w *world) confine(l limit, pids ...int) (release func()) {
	w.t.Helper()
	parent, err := groupOf(l.controller)
	if err != nil {
		w.note("  no limit: %v", err)
		return func() {}
	}
	w.groups++
	dir := filepath.Join(parent, fmt.Sprintf("kernosis-chaos-%d-%d", os.Getpid(), w.groups))
	w.must(os.Mkdir(dir, 0o755))
	w.must(os.WriteFile(filepath.Join(dir, l.file), []byte(l.content), 0))
	for _, pid := range pids {
		move(w, pid, dir)
	}
	return func() {
		w.await("empty cgroup", func() (bool, string) { // a killed process stays until it was waited for
			members, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
			w.must(err)
			for member := range strings.FieldsSeq(string(members)) {
				pid, _ := strconv.Atoi(member)
				move(w, pid, parent)
			}
			err = os.Remove(dir)
			return err == nil, fmt.Sprint(err)
		})
	}
}

// move moves a process into a cgroup, unless it has ended.
func move(w *world, pid int, dir string) {
	w.t.Helper()
	err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
	if err != nil && !errors.Is(err, syscall.ESRCH) {
		w.t.Fatal(err)
	}
}

// groupOf returns the folder of this process' cgroup in a controller's hierarchy.
func groupOf(controller string) (dir string, err error) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.SplitN(strings.TrimSpace(line), ":", 3); len(fields) == 3 && fields[1] == controller {
			return filepath.Join("/sys/fs/cgroup", controller, fields[2]), nil
		}
	}
	return "", fmt.Errorf("no cgroup v1 hierarchy of %s", controller)
}

// overflowKills are more kills than the ring has room for: 660.
const overflowKills = 800

// overflow freezes the agent while so many processes are killed that its ring of OOM kills overflows.
func (w *world) overflow() {
	w.t.Helper()
	w.heal(process)
	w.agent.Signal(syscall.SIGSTOP)
	w.losses.lags()
	defer w.losses.lags()
	defer w.agent.Signal(syscall.SIGCONT)
	w.flood(overflowKills)
}

// flooding is a shell script that fills its cgroup again and again. The processes that do have the name of the
// test's victims, and the kernel prefers them.
const flooding = `echo $$ >"$1/cgroup.procs" || exit
i=0
while [ $i -lt "$2" ]; do
	i=$((i+1))
	(echo 1000 >/proc/self/oom_score_adj; exec "$3" if=/dev/zero of=/dev/null bs=64M count=1) 2>/dev/null && exit 1
done
exit 0
`

// floodBytes is the limit of the flooded cgroup: little, so that a process reaches it soon.
const floodBytes = 6 << 20

// flood has the kernel kill n processes as fast as it can, in a cgroup beside the test's own, whose main process it
// could kill, too.
func (w *world) flood(n int) {
	w.t.Helper()
	dd, err := exec.LookPath("dd")
	w.must(err)
	named := filepath.Join(w.t.TempDir(), victimName)
	w.must(os.Symlink(dd, named))
	group := w.oom.Cgroup() + "-flood"
	w.must(os.Mkdir(group, 0o755))
	defer func() { w.must(os.Remove(group)) }()
	limit := filepath.Join(group, "memory.limit_in_bytes")
	if _, err := os.Stat(limit); err != nil {
		limit = filepath.Join(group, "memory.max")
	}
	w.must(os.WriteFile(limit, []byte(strconv.Itoa(floodBytes)), 0))
	began := time.Now()
	out, err := exec.CommandContext(w.t.Context(), "sh", "-c", flooding, "sh", group, strconv.Itoa(n), named).CombinedOutput()
	if err != nil {
		w.t.Fatalf("flood: %v: %s", err, out)
	}
	w.flooded += n
	w.note("  %d kills in %v", n, time.Since(began))
}
