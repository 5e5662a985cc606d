package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kernosis/kernosis/cmd/kernosis/agent"
	"github.com/kernosis/kernosis/cmd/kernosis/bundle"
	"github.com/kernosis/kernosis/collector/bounded"
	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/process"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/reporter/journal"
)

// settings returns the agent's configuration and its description. If no agent runs, it returns the
// default configuration.
func (s *support) settings() (agent.Config, string, error) {
	if s.process != nil {
		return s.process.config, fmt.Sprintf("effective settings of pid %d, with their origins", s.process.pid), s.process.err
	}
	cfg, err := agent.Load(newAgentCommand().Flags(), nil)
	cfg.StateDir = s.c.StateDir
	return cfg, "no agent is running: the defaults of kernosis agent", err
}

func (s *support) readSettings(context.Context) (what, text string, err error) {
	cfg, what, err := s.settings()
	if err != nil {
		return "", "", err
	}
	doc, err := cfg.Document()
	if err == nil {
		err = bundle.RedactYAML(doc)
	}
	if err != nil {
		return "", "", err
	}
	raw, err := document.EncodeYAML(doc)
	for _, w := range cfg.Warnings() {
		raw = fmt.Appendf(raw, "# warning: %s\n", w)
	}
	return what, string(raw), err
}

func (s *support) readRules(ctx context.Context) (what, text string, err error) {
	cfg, _, err := s.settings()
	if err != nil {
		return "", "", err
	}
	set, err := readIn(ctx, s.c.Reads, s.c.StateDir, func() (*detector.RuleSet, error) { return cfg.RulesInForce() })
	var b strings.Builder
	switch {
	case errors.Is(err, bounded.ErrLate):
		return "", "", err
	case err != nil:
		fmt.Fprintf(&b, "The rules have mistakes, so the previous ones stay in force:\n%v\n", err)
		err = nil
	default:
		err = tabulateRules(&b, set, true)
		fmt.Fprintf(&b, "\n%d rules, %d conditions: ok\n", len(set.Rules()), len(set.Conditions()))
	}
	return "rules in force, and their check", b.String(), err
}

// ruleFiles returns the operator's rule files.
func (s *support) ruleFiles(ctx context.Context) (files []bundled) {
	cfg, _, err := s.settings()
	if err != nil || cfg.RulesDir == "" {
		return nil
	}
	reads := &bounded.Calls{} // separate: the folder may be on another disk
	paths, err := readIn(ctx, reads, cfg.RulesDir, func() ([]string, error) { return filepath.Glob(filepath.Join(cfg.RulesDir, "*.y*ml")) })
	if err != nil {
		s.archive.Lack("rules", err)
	}
	for _, path := range paths {
		files = append(files, bundled{"rules/" + filepath.Base(path), func(ctx context.Context) (what, text string, err error) {
			raw, err := readIn(ctx, reads, cfg.RulesDir, func() ([]byte, error) { return document.ReadAtMost(path, detector.MaxFile) })
			return path, string(raw), err
		}})
	}
	return files
}

func (s *support) readJournal(ctx context.Context) (what, text string, err error) {
	dir := s.c.Journal
	raw, err := readIn(ctx, s.c.Reads, s.c.StateDir, func() ([]byte, error) { return journal.Tail(dir, bundle.MaxFile) })
	return "the latest entries of " + dir, string(raw), err
}

// kernelFacts returns files that describe the kernel, its settings and the machine's load.
func kernelFacts() []string {
	return []string{
		"/proc/version", "/proc/cmdline", "/proc/uptime", "/proc/loadavg", "/proc/meminfo", "/proc/pressure/cpu", "/proc/pressure/memory", "/proc/pressure/io",
		"/proc/filesystems", "/proc/modules", "/proc/sys/kernel/tainted", "/proc/sys/kernel/hung_task_timeout_secs", "/proc/sys/kernel/dmesg_restrict",
		"/proc/sys/kernel/kptr_restrict", "/proc/sys/kernel/perf_event_paranoid", "/proc/sys/kernel/unprivileged_bpf_disabled", "/proc/sys/net/core/bpf_jit_enable",
		"/sys/kernel/security/lockdown", "/sys/fs/cgroup/cgroup.controllers", "/etc/os-release",
	}
}

func (s *support) readKernel(context.Context) (what, text string, err error) {
	host := hostfs.New(s.hostRoot())
	var b strings.Builder
	for _, path := range kernelFacts() {
		section(&b, path, host.Path(path))
	}
	btf := "present: BPF programs can be loaded"
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err != nil {
		btf = err.Error()
	}
	fmt.Fprintf(&b, "== /sys/kernel/btf/vmlinux\n%s\n", btf)
	return "kernel, its settings, memory, load, modules", b.String(), nil
}

// section adds the content of a kernel file below a title.
func section(b *strings.Builder, title, path string) {
	text, err := document.ReadAtMost(path, 256<<10)
	if err != nil {
		text = []byte("can't be read: " + err.Error())
	}
	fmt.Fprintf(b, "== %s\n%s\n\n", title, bytes.TrimSpace(text))
}

func (s *support) readProcess(context.Context) (what, text string, err error) {
	if s.process == nil {
		return "", "", errNoAgent
	}
	pid := s.process.pid
	var b strings.Builder
	command, err := hostfs.New("/").Cmdline(pid)
	if err != nil {
		command = err.Error()
	}
	fmt.Fprintf(&b, "== command line\n%s\n\n", command)
	for _, file := range []string{"status", "limits", "cgroup", "io"} {
		section(&b, procFile(pid, file), procFile(pid, file))
	}
	if fds, err := os.ReadDir(procFile(pid, "fd")); err == nil {
		fmt.Fprintf(&b, "== open files\n%d\n", len(fds))
	}
	return "the agent's process", b.String(), nil
}

// readLog reads the agent's log: a file, or the journal of its systemd unit.
func (s *support) readLog(ctx context.Context) (what, text string, err error) {
	if s.process == nil {
		return "", "", errNoAgent
	}
	return agentLog(ctx, s.process.pid)
}

var errNoAgent = errors.New("no agent is running, or its process can't be read") //nolint:gochecknoglobals // a constant

// maxLog bounds what is read from the end of a log, in bytes.
const maxLog = 4 << 20

// agentLog reads the file or journal to which a process' standard error goes.
func agentLog(ctx context.Context, pid int) (what, text string, err error) {
	path := procFile(pid, "fd/2")
	target, err := os.Readlink(path)
	if err != nil {
		return "", "", err
	}
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
		text, err := readEnd(path, maxLog)
		return target, text, err
	}
	if unit := unitOf(pid); unit != "" {
		text, err := journalOf(ctx, unit)
		return "journald, unit " + unit, text, err
	}
	return "", "", fmt.Errorf("its standard error is %s, which can't be read from here: use kubectl logs, or the terminal where it was started", target)
}

// unitOf returns the systemd service of a process, or "".
func unitOf(pid int) string {
	groups, err := hostfs.New("/").ProcCgroups(pid)
	if err != nil {
		return ""
	}
	for _, g := range groups {
		if unit := filepath.Base(g.Path); strings.HasSuffix(unit, ".service") {
			return unit
		}
	}
	return ""
}

func journalOf(ctx context.Context, unit string) (string, error) {
	p := process.Program{
		Path: "journalctl", Args: []string{"--unit=" + unit, "--no-pager", "--output=short-iso", "--lines=5000"},
		Timeout: 20 * time.Second, Env: plainEnviron(), Keep: maxLog,
	}
	o := p.Run(ctx)
	if o.Err == nil && !o.State.Success() {
		o.Err = errors.New(o.State.String())
	}
	if o.Err != nil {
		return "", fmt.Errorf("journalctl: %w: %s", o.Err, cmp.Or(string(o.StderrEnd), "no error output"))
	}
	return string(o.Stdout), nil
}

func readEnd(path string, most int64) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.NewSectionReader(f, max(info.Size()-most, 0), most))
	return string(text), err
}
