package operation

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/hostfs"
)

// KernelFacts returns the built-in kernel-facts.
func KernelFacts(h Host) Builtin {
	return bounded(Builtin{
		Name: "kernel-facts",
		Doc: "Tells about the kernel: release, command line, why it is tainted, modules that taint it, uptime, load, pressure, lockdown, and tables that are " +
			"nearly full. kernel.txt has settings and modules.",
		Effect: Collect,
		Results: []Result{
			{"release", "release"},
			{"version", "build"},
			{"commandLine", "what it was started with, as far as it fits"},
			{"uptime", "time since boot, suspends included"},
			{"tainted", "its taint mask; 0: not tainted"},
			{"taint", "that decoded: P proprietary module, W warning …"},
			{"modules", "how many modules are loaded"},
			{"taintingModules", "those that taint it, with the letters"},
			{"load1", "load of the last minute: tasks that run, want to, or sleep uninterruptibly"},
			{"load5", "of the last 5 minutes"},
			{"load15", "of the last 15 minutes"},
			{"tasks", "threads there are"},
			{"cpuPressure10", "percent of 10 s in which tasks waited for a CPU"},
			{"memoryPressure10", "for memory"},
			{"ioPressure10", "for I/O"},
			{"ioPressureFull10", "percent of 10 s in which all tasks waited for I/O"},
			{"lockdown", "whether it is locked down to confidentiality, which forbids to trace it"},
			{"cgroups", "v1, v2, hybrid or none"},
			{"settings", "settings that decide how faults are met, as far as they fit"},
			{"nearlyFull", "tables that are used to 90 % or more: pids, files, connections"},
			noteResult(),
		},
		Run: func(ctx context.Context, call *Call) (Output, error) { return h.kernelFacts(ctx, call) },
	})
}

// kernelSettings are the sysctls that matter in a diagnosis; the first ones are those
// of the results.
func kernelSettings() []string {
	return []string{
		"kernel.hung_task_timeout_secs", "kernel.hung_task_panic", "kernel.panic", "kernel.panic_on_oops", "kernel.softlockup_panic",
		"vm.overcommit_memory", "vm.panic_on_oom", "vm.oom_kill_allocating_task", "vm.swappiness", "vm.min_free_kbytes",
		"kernel.hung_task_warnings", "kernel.hung_task_check_interval_secs", "kernel.watchdog_thresh", "kernel.kptr_restrict", "kernel.dmesg_restrict",
		"kernel.unprivileged_bpf_disabled", "kernel.printk", "vm.dirty_ratio", "vm.dirty_background_ratio", "vm.max_map_count",
		"net.core.somaxconn", "net.ipv4.tcp_max_syn_backlog", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies", "net.ipv4.ip_forward",
		"fs.inotify.max_user_instances", "fs.inotify.max_user_watches", "fs.nr_open", "user.max_user_namespaces",
	}
}

// firstSettings of them are results.
const firstSettings = 10

func (h Host) kernelFacts(ctx context.Context, call *Call) (Output, error) {
	f := newFinding()
	release, err := h.FS.Sysctl("kernel.osrelease")
	if err != nil {
		return Output{}, fmt.Errorf("read the kernel's release: %w", err)
	}
	f.text("release", release)
	set := func(name, sysctl string) {
		if s, err := h.FS.Sysctl(sysctl); err == nil {
			f.text(name, s)
		}
	}
	set("version", "kernel.version")
	line, err := h.FS.KernelCommandLine()
	if err != nil {
		f.note("the command line can't be read: %v", err)
	}
	f.text("commandLine", line)
	f.text("uptime", hostfs.BootTime().Truncate(time.Second).String())
	modules := h.taints(f)
	h.load(f)
	f.bool("lockdown", h.FS.LockedDown())
	if layout, err := h.FS.CgroupLayout(); err == nil {
		f.text("cgroups", string(layout.Mode))
	}
	f.text("nearlyFull", strings.Join(h.fullTables(), ", "))
	var settings, first []string
	for i, name := range kernelSettings() {
		value, err := h.FS.Sysctl(name)
		if err != nil {
			continue // not every kernel has all of them
		}
		s := name + "=" + strings.Join(strings.Fields(value), ",")
		settings = append(settings, s)
		if i < firstSettings {
			first = append(first, s)
		}
	}
	f.text("settings", strings.Join(first, " "))
	if ctx.Err() != nil {
		return Output{}, context.Cause(ctx)
	}
	err = f.artifact(call, "kernel.txt", func(w *page) {
		w.printf("release %s\ncommand line %s\n", release, line)
		for _, s := range settings {
			w.printf("%s\n", s)
		}
		for i := range modules {
			w.printf("module %s %s %s\n", modules[i].Name, display.Bytes(modules[i].Size), modules[i].Taint)
		}
	})
	return f.output(nil), err
}

// taints sets why the kernel is tainted and by which modules.
func (h Host) taints(f *finding) []hostfs.Module {
	if s, err := h.FS.Sysctl("kernel.tainted"); err != nil {
		f.note("whether it is tainted can't be read: %v", err)
	} else if mask, err := strconv.ParseUint(s, 10, 64); err == nil {
		f.uint("tainted", mask)
		var why []string
		for _, t := range hostfs.Taints(mask) {
			why = append(why, string(t.Letter)+" "+t.Reason)
		}
		f.text("taint", strings.Join(why, ", "))
	}
	modules, err := h.FS.Modules()
	if err != nil {
		f.note("modules can't be listed: %v", err)
		return nil
	}
	f.int("modules", int64(len(modules)))
	var tainting []string
	for i := range modules {
		if modules[i].Taint != "" {
			tainting = append(tainting, modules[i].Name+"("+modules[i].Taint+")")
		}
	}
	f.text("taintingModules", strings.Join(tainting, " "))
	return modules
}

// load sets load and pressure; a kernel without pressure leaves it out.
func (h Host) load(f *finding) {
	if l, err := h.FS.LoadAverage(); err != nil {
		f.note("the load can't be read: %v", err)
	} else {
		f.text("load1", strconv.FormatFloat(l.One, 'f', 2, 64))
		f.text("load5", strconv.FormatFloat(l.Five, 'f', 2, 64))
		f.text("load15", strconv.FormatFloat(l.Fifteen, 'f', 2, 64))
		f.uint("tasks", l.Tasks)
	}
	for _, resource := range []string{"cpu", "memory", "io"} {
		p, err := h.FS.Pressure(resource)
		if err != nil {
			continue
		}
		f.text(resource+"Pressure10", strconv.FormatFloat(p.Some.Avg10, 'f', 2, 64))
		if resource == "io" {
			f.text("ioPressureFull10", strconv.FormatFloat(p.Full.Avg10, 'f', 2, 64))
		}
	}
}

// fullTables names the kernel's tables that are nearly full.
func (h Host) fullTables() []string {
	const nearly = 90
	number := func(sysctl string, field int) (uint64, bool) {
		s, err := h.FS.Sysctl(sysctl)
		fields := strings.Fields(s)
		if err != nil || field >= len(fields) {
			return 0, false
		}
		n, err := strconv.ParseUint(fields[field], 10, 64)
		return n, err == nil
	}
	var out []string
	add := func(name string, used, limit uint64, ok1, ok2 bool) {
		if ok1 && ok2 && limit > 0 && float64(used) >= float64(limit)*nearly/100 {
			out = append(out, fmt.Sprintf("%s %d of %d", name, used, limit))
		}
	}
	if l, err := h.FS.LoadAverage(); err == nil {
		for _, sysctl := range []string{"kernel.pid_max", "kernel.threads-max"} {
			limit, ok := number(sysctl, 0)
			add(sysctl, l.Tasks, limit, true, ok)
		}
	}
	used, ok1 := number("fs.file-nr", 0)
	limit, ok2 := number("fs.file-nr", 2)
	add("fs.file-max", used, limit, ok1, ok2)
	used, ok1 = number("net.netfilter.nf_conntrack_count", 0)
	limit, ok2 = number("net.netfilter.nf_conntrack_max", 0)
	add("net.netfilter.nf_conntrack_max", used, limit, ok1, ok2)
	return out
}
