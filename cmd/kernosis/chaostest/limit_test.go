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
	w.flood(overflowKills)
	w.agent.Signal(syscall.SIGCONT)
	w.losses.lags()
}

// flooding is a shell script that fills a cgroup again and again. Its processes have the name of the test's
// victims, and the kernel prefers them.
const flooding = `echo $$ >"$1/cgroup.procs" || exit
echo -500 >/proc/self/oom_score_adj
i=0
while [ $i -lt "$2" ]; do
	i=$((i+1))
	(echo 500 >/proc/self/oom_score_adj; exec "$3" if=/dev/zero of=/dev/null bs=64M count=1) 2>/dev/null && exit 1
done
exit 0
`

// flood has the kernel kill n processes of the test's cgroup, as fast as it can.
func (w *world) flood(n int) {
	w.t.Helper()
	dd, err := exec.LookPath("dd")
	w.must(err)
	named := filepath.Join(w.t.TempDir(), victimName)
	w.must(os.Symlink(dd, named))
	before, err := w.oom.Kills()
	w.must(err)
	restore := w.narrow()
	defer restore()
	began := time.Now()
	out, err := exec.CommandContext(w.t.Context(), "sh", "-c", flooding, "sh", w.oom.Cgroup(), strconv.Itoa(n), named).CombinedOutput()
	if err != nil {
		w.t.Fatalf("flood: %v: %s", err, out)
	}
	after, err := w.oom.Kills()
	w.must(err)
	w.note("  %d kills in %v", after-before, time.Since(began))
	if after-before != uint64(n) {
		w.t.Fatalf("the kernel counts %d kills, of %d", after-before, n)
	}
}

// floodBytes is the memory that each process of a flood has.
const floodBytes = 6 << 20

// narrow lowers the limit of the test's cgroup, so that a process reaches it soon.
func (w *world) narrow() (restore func()) {
	w.t.Helper()
	usage, limit := filepath.Join(w.oom.Cgroup(), "memory.usage_in_bytes"), filepath.Join(w.oom.Cgroup(), "memory.limit_in_bytes")
	if _, err := os.Stat(usage); err != nil {
		usage, limit = filepath.Join(w.oom.Cgroup(), "memory.current"), filepath.Join(w.oom.Cgroup(), "memory.max")
	}
	before, err := os.ReadFile(limit)
	w.must(err)
	text, err := os.ReadFile(usage)
	w.must(err)
	used, err := strconv.Atoi(strings.TrimSpace(string(text)))
	w.must(err)
	w.must(os.WriteFile(limit, []byte(strconv.Itoa(used+floodBytes)), 0))
	return func() { w.must(os.WriteFile(limit, before, 0)) }
}
