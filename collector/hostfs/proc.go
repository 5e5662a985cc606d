package hostfs

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
)

const (
	// maxComm exceeds every name: TASK_COMM_LEN is 16, but kernel threads show up to 63 bytes.
	maxComm = 64
	// maxCmdline bounds what is shown of a command line, which may have megabytes.
	maxCmdline = 1024
	// userHZ is the unit of times in /proc/PID/stat on every architecture that Go supports on
	// Linux. It is not the kernel's HZ.
	userHZ = 100
)

// errSyntax is wrapped by every parser of /proc files with the file's name.
var errSyntax = errors.New("unexpected format")

// Stat is the part of /proc/PID/stat that is used here.
type Stat struct {
	PID       uint32
	Comm      string // raw: may contain anything except NUL
	State     byte   // R, S, D, Z …
	PPID      uint32
	StartTime time.Duration // since boot, in steps of 10 ms
	CPU       int           // where it runs or last ran; -1: unknown
}

// ParseStat parses the text of /proc/PID/stat. A comm may contain spaces, parentheses and line
// feeds; it ends at the last ")".
func ParseStat(s string) (Stat, error) {
	open, end := strings.IndexByte(s, '('), strings.LastIndexByte(s, ')')
	if open < 2 || end < open || s[open-1] != ' ' {
		return Stat{}, fmt.Errorf("stat: %w", errSyntax)
	}
	pid, err := strconv.ParseUint(s[:open-1], 10, 32)
	if err != nil {
		return Stat{}, fmt.Errorf("stat: pid: %w", err)
	}
	// The fields from the third on (proc_pid_stat(5) counts from 1).
	fields := strings.Fields(s[end+1:])
	if len(fields) < 20 || len(fields[0]) != 1 {
		return Stat{}, fmt.Errorf("stat: %w", errSyntax)
	}
	ppid, err := strconv.ParseUint(fields[4-3], 10, 32)
	if err != nil {
		return Stat{}, fmt.Errorf("stat: ppid: %w", err)
	}
	ticks, err := strconv.ParseUint(fields[22-3], 10, 63)
	if err != nil || ticks > uint64(1<<63-1)/(uint64(time.Second)/userHZ) {
		return Stat{}, fmt.Errorf("stat: start time: %w", errSyntax)
	}
	cpu := -1
	if len(fields) > 39-3 { // since v2.2.8
		if n, err := strconv.ParseUint(fields[39-3], 10, 16); err == nil {
			cpu = int(n)
		}
	}
	return Stat{
		PID:       uint32(pid),
		Comm:      s[open+1 : end],
		State:     fields[0][0],
		PPID:      uint32(ppid),
		StartTime: time.Duration(ticks) * (time.Second / userHZ),
		CPU:       cpu,
	}, nil
}

// Stat reads /proc/PID/stat of a process or thread.
func (f FS) Stat(pid int) (Stat, error) {
	return parsed(f, procPath(pid, "stat"), smallFile, ParseStat)
}

// Task returns a process or thread that still exists. Its start time is rounded down to 10 ms, so
// [event.Task.ID] differs from the ID in a BPF record of the same task.
func (f FS) Task(pid int) (event.Task, error) {
	stat, err := f.Stat(pid)
	if err != nil {
		return event.Task{}, err
	}
	status, err := f.ProcStatus(pid)
	if err != nil {
		return event.Task{}, err
	}
	return event.Task{
		PID:       stat.PID,
		TGID:      status.TGID,
		Comm:      display.Safe(stat.Comm, maxComm),
		StartTime: event.Duration(stat.StartTime),
		UID:       status.UID,
	}, nil
}

// Comm returns the name of a process or thread, escaped.
func (f FS) Comm(pid int) (string, error) {
	s, err := f.read(procPath(pid, "comm"), smallFile)
	if err != nil {
		return "", err
	}
	return display.Safe(strings.TrimSuffix(s, "\n"), maxComm), nil
}

// Cmdline returns the beginning of a process' command line: arguments joined by spaces, escaped,
// without apparent secrets ([Redact]). It is empty for kernel threads.
func (f FS) Cmdline(pid int) (string, error) {
	b, err := f.readCut(procPath(pid, "cmdline"), maxCmdline+2)
	if err != nil {
		return "", err
	}
	return parseCmdline(b), nil
}

func parseCmdline(b []byte) string {
	if len(b) <= maxCmdline+1 { // complete, with the NUL at its end
		b = bytes.TrimRight(b, "\x00")
	} else {
		b = cutUserInfo.ReplaceAll(b, []byte("$1:"+Redacted))
	}
	if len(b) == 0 {
		return ""
	}
	return display.Safe(strings.Join(Redact(strings.Split(string(b), "\x00")), " "), maxCmdline)
}

// ProcCgroup is one line of /proc/PID/cgroup.
type ProcCgroup struct {
	Hierarchy   int    // 0: the default (v2) hierarchy
	Controllers string // "memory", "cpu,cpuacct", "name=systemd"; empty for v2
	Path        string // raw
}

// maxProcCgroups exceeds the number of hierarchies that the kernel supports.
const maxProcCgroups = 64

// ParseProcCgroups parses the text of /proc/PID/cgroup, whose paths are relative to the root of the
// reader's cgroup namespace. It removes the mark " (deleted)" of a removed cgroup.
func ParseProcCgroups(s string) ([]ProcCgroup, error) {
	var out []ProcCgroup
	for line := range strings.Lines(s) {
		line = strings.TrimSuffix(line, "\n")
		id, rest, ok1 := strings.Cut(line, ":")
		controllers, path, ok2 := strings.Cut(rest, ":")
		n, err := strconv.ParseUint(id, 10, 31)
		if !ok1 || !ok2 || err != nil || !strings.HasPrefix(path, "/") {
			return nil, fmt.Errorf("cgroup: %w", errSyntax)
		}
		if len(out) == maxProcCgroups {
			break
		}
		path = strings.TrimSuffix(path, " (deleted)")
		out = append(out, ProcCgroup{Hierarchy: int(n), Controllers: controllers, Path: path})
	}
	return out, nil
}

// ProcCgroups reads /proc/PID/cgroup. v2 paths are from the hierarchy's root, even if this process
// is in a cgroup namespace. A path whose upper levels are unknown begins with "…/".
func (f FS) ProcCgroups(pid int) ([]ProcCgroup, error) {
	s, err := f.read(procPath(pid, "cgroup"), maxProcCgroups*maxCgroupPath)
	if err != nil {
		return nil, err
	}
	groups, err := ParseProcCgroups(s)
	for i := range groups {
		g, namespace := &groups[i], ""
		if g.Hierarchy == 0 {
			namespace = f.cgroupNamespace()
		}
		g.Path = fromCgroupRoot(namespace, g.Path)
	}
	return groups, err
}

// ThreadStates returns the states of at most limit threads of a process, the main thread first.
func (f FS) ThreadStates(pid, limit int) ([]Stat, error) {
	tids, err := f.numbers(procPath(pid, "task"), limit)
	if err != nil {
		return nil, err
	}
	out := make([]Stat, 0, len(tids))
	for _, tid := range tids {
		st, err := parsed(f, procPath(pid, "task/"+strconv.Itoa(tid)+"/stat"), smallFile, ParseStat)
		if err == nil { // else it has ended
			out = append(out, st)
		}
	}
	return out, nil
}

// Threads returns the threads of a process, sorted.
func (f FS) Threads(pid int) ([]int, error) {
	tids, err := f.numbers(procPath(pid, "task"), -1)
	slices.Sort(tids)
	return tids, err
}

// PIDs returns the pids of all processes, sorted.
func (f FS) PIDs() ([]int, error) {
	pids, err := f.numbers("/proc", -1)
	slices.Sort(pids)
	return pids, err
}
