package node

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/diagnose/operation"
)

func KernelFacts(h operation.Host) operation.Builtin {
	return operation.Bounded(operation.Builtin{
		Name: "kernel-facts",
		Doc: "Describes the kernel: release, command line, taint and the modules that cause it, uptime, load, pressure, lockdown, and nearly full tables. " +
			"Artifact kernel.txt has settings and modules.",
		Effect: operation.Collect,
		Results: []operation.Result{
			{Name: "release", Doc: "release"},
			{Name: "version", Doc: "build"},
			{Name: "commandLine", Doc: "boot command line, as far as it fits"},
			{Name: "uptime", Doc: "time since boot, including suspends"},
			{Name: "tainted", Doc: "taint mask; 0: not tainted"},
			{Name: "taint", Doc: "decoded mask: P proprietary module, W warning …"},
			{Name: "modules", Doc: "number of loaded modules"},
			{Name: "taintingModules", Doc: "modules that taint it, with the letters"},
			{Name: "load1", Doc: "load of the last minute: tasks running, runnable or in uninterruptible sleep"},
			{Name: "load5", Doc: "load of the last 5 minutes"},
			{Name: "load15", Doc: "load of the last 15 minutes"},
			{Name: "tasks", Doc: "number of threads"},
			{Name: "cpuPressure10", Doc: "percent of 10 s in which some tasks waited for a CPU"},
			{Name: "memoryPressure10", Doc: "likewise for memory"},
			{Name: "ioPressure10", Doc: "likewise for I/O"},
			{Name: "ioPressureFull10", Doc: "percent of 10 s in which all tasks waited for I/O"},
			{Name: "lockdown", Doc: "whether lockdown is in confidentiality mode, which forbids tracing"},
			{Name: "cgroups", Doc: "v1, v2, hybrid or none"},
			{Name: "settings", Doc: "settings that determine fault handling, as far as they fit"},
			{Name: "nearlyFull", Doc: "tables filled to 90 % or more: PIDs, files, connections"},
			operation.NoteResult(),
		},
		Run: host(h).kernelFacts,
	})
}

// kernelSettings returns the sysctls that matter in a diagnosis. The first ones are part of the
// results.
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

// firstSettings is how many of them are part of the results.
const firstSettings = 10

func (h host) kernelFacts(ctx context.Context, call *operation.Call) (operation.Output, error) {
	f := operation.NewFinding()
	release, err := h.FS.Sysctl("kernel.osrelease")
	if err != nil {
		return operation.Output{}, fmt.Errorf("read the kernel's release: %w", err)
	}
	f.Text("release", release)
	if s, err := h.FS.Sysctl("kernel.version"); err == nil {
		f.Text("version", s)
	}
	line, err := h.FS.KernelCommandLine()
	if err != nil {
		f.Note("the command line can't be read: %v", err)
	}
	f.Text("commandLine", line)
	f.Text("uptime", hostfs.BootTime().Truncate(time.Second).String())
	modules := h.taints(f)
	h.load(f)
	f.Bool("lockdown", h.FS.LockedDown())
	if layout, err := h.FS.CgroupLayout(); err == nil {
		f.Text("cgroups", layout.Versions())
	}
	f.Text("nearlyFull", strings.Join(h.fullTables(), ", "))
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
	f.Text("settings", strings.Join(first, " "))
	err = f.Artifact(call, "kernel.txt", func(w *operation.Page) {
		w.Printf("release %s\ncommand line %s\n", release, line)
		for _, s := range settings {
			w.Printf("%s\n", s)
		}
		for i := range modules {
			w.Printf("module %s %s %s\n", modules[i].Name, display.Bytes(modules[i].Size), modules[i].Taint)
		}
	})
	return f.Output(nil), err
}

// taints sets why the kernel is tainted and by which modules.
func (h host) taints(f *operation.Finding) []hostfs.Module {
	if s, err := h.FS.Sysctl("kernel.tainted"); err != nil {
		f.Note("the taint can't be read: %v", err)
	} else if mask, err := strconv.ParseUint(s, 10, 64); err == nil {
		f.Uint("tainted", mask)
		var why []string
		for _, t := range hostfs.Taints(mask) {
			why = append(why, string(t.Letter)+" "+t.Reason)
		}
		f.Text("taint", strings.Join(why, ", "))
	}
	modules, err := h.FS.Modules()
	if err != nil {
		f.Note("modules can't be listed: %v", err)
		return nil
	}
	f.Int("modules", int64(len(modules)))
	var tainting []string
	for i := range modules {
		if modules[i].Taint != "" {
			tainting = append(tainting, modules[i].Name+"("+modules[i].Taint+")")
		}
	}
	f.Text("taintingModules", strings.Join(tainting, " "))
	return modules
}

// load sets load and pressure. Pressure is left out if the kernel lacks it.
func (h host) load(f *operation.Finding) {
	if l, err := h.FS.LoadAverage(); err != nil {
		f.Note("the load can't be read: %v", err)
	} else {
		f.Float("load1", l.One)
		f.Float("load5", l.Five)
		f.Float("load15", l.Fifteen)
		f.Uint("tasks", l.Tasks)
	}
	for _, resource := range []string{"cpu", "memory", "io"} {
		p, err := h.FS.Pressure(resource)
		if err != nil {
			continue
		}
		f.Float(resource+"Pressure10", p.Some)
		if resource == "io" {
			f.Float("ioPressureFull10", p.Full)
		}
	}
}

// fullTables lists the kernel tables that are nearly full.
func (h host) fullTables() []string {
	const nearly = 90
	number := func(sysctl string, field int) (n uint64) { // 0: it can't be read
		s, err := h.FS.Sysctl(sysctl)
		if fields := strings.Fields(s); err == nil && field < len(fields) {
			n, _ = strconv.ParseUint(fields[field], 10, 64)
		}
		return n
	}
	var out []string
	add := func(name string, used, limit uint64) {
		if limit > 0 && float64(used) >= float64(limit)*nearly/100 {
			out = append(out, fmt.Sprintf("%s %d of %d", name, used, limit))
		}
	}
	if l, err := h.FS.LoadAverage(); err == nil {
		for _, sysctl := range []string{"kernel.pid_max", "kernel.threads-max"} {
			add(sysctl, l.Tasks, number(sysctl, 0))
		}
	}
	add("fs.file-max", number("fs.file-nr", 0), number("fs.file-nr", 2))
	const conntrack = "net.netfilter.nf_conntrack_"
	add(conntrack+"max", number(conntrack+"count", 0), number(conntrack+"max", 0))
	return out
}
