package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kernosis/kernosis/cmd/kernosis/bundle"
	"github.com/kernosis/kernosis/cmd/kernosis/status"
	"github.com/kernosis/kernosis/collector/bounded"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/process"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/reporter/journal"
)

// settings returns the agent's configuration; without an agent the one that it would have here.
func (s *support) settings() (agentConfig, string, error) {
	if s.process != nil {
		return s.process.config, fmt.Sprintf("effective settings of pid %d, with their origins", s.process.pid), s.process.err
	}
	cfg, err := loadConfigFrom(newAgentCommand(), nil)
	cfg.StateDir = s.c.StateDir
	return cfg, "no agent runs: the settings that kernosis agent has by default", err
}

func (s *support) addSettings(context.Context) error {
	const name = "config.yaml"
	cfg, what, err := s.settings()
	if err != nil {
		s.archive.Lack(name, err)
		return nil
	}
	doc, err := cfg.document()
	if err == nil {
		err = bundle.RedactYAML(doc)
	}
	var b bytes.Buffer
	if err == nil {
		err = writeDocument(&b, doc)
	}
	if err != nil {
		s.archive.Lack(name, err)
		return nil
	}
	for _, w := range cfg.warnings {
		fmt.Fprintf(&b, "# warning: %s\n", w)
	}
	return s.archive.Text(name, what, b.String())
}

// addRules adds the rules in force, whether they are valid, and the operator's files.
func (s *support) addRules(ctx context.Context) error {
	const name = "rules.txt"
	cfg, _, err := s.settings()
	if err != nil {
		s.archive.Lack(name, err)
		return nil
	}
	var b strings.Builder
	inForce := cfg
	set, err := status.ReadFolder(ctx, s.c.Reads, stateWithin, s.c.StateDir, func(func() error) (*detector.RuleSet, error) { return rulesInForce(&inForce) })
	if errors.Is(err, bounded.ErrLate) {
		s.archive.Lack(name, err)
		return nil
	}
	if err != nil {
		fmt.Fprintf(&b, "The rules have mistakes, so the ones before them are in force:\n%v\n", err)
	} else if err := tabulateRules(&b, set, true); err != nil {
		return err
	} else {
		fmt.Fprintf(&b, "\n%d rules, %d conditions: ok\n", len(set.Rules()), len(set.Conditions()))
	}
	err = s.archive.Text(name, "rules in force, and their check", b.String())
	if cfg.RulesDir == "" {
		return err
	}
	files, globErr := filepath.Glob(filepath.Join(cfg.RulesDir, "*.y*ml"))
	if globErr != nil {
		s.archive.Lack("rules", globErr)
	}
	for _, path := range files {
		text, readErr := readAtMost(path, detector.MaxFile)
		if readErr != nil {
			s.archive.Lack("rules/"+filepath.Base(path), readErr)
			continue
		}
		err = errors.Join(err, s.archive.Text("rules/"+filepath.Base(path), path, string(text)))
	}
	return err
}

// rulesInForce are those that an agent of this configuration has.
func rulesInForce(cfg *agentConfig) (*detector.RuleSet, error) {
	if cfg.isAgent {
		if err := cfg.readNPD(); err != nil {
			return nil, err
		}
	}
	cfg.rememberServices(slog.New(slog.DiscardHandler))
	set, _, err := cfg.rules()
	return set, err
}

func (s *support) addJournal(ctx context.Context) error {
	const name = "journal.jsonl"
	dir := s.c.Journal
	text, err := status.ReadFolder(ctx, s.c.Reads, stateWithin, s.c.StateDir, func(func() error) ([]byte, error) { return journal.Tail(dir, bundle.MaxFile) })
	if err != nil {
		s.archive.Lack(name, err)
		return nil
	}
	return s.archive.JSON(name, "the latest entries of "+s.c.Journal, text)
}

// kernelFacts are files that say what kernel this is, how it is set, and how the machine does.
func kernelFacts() []string {
	return []string{
		"/proc/version", "/proc/cmdline", "/proc/uptime", "/proc/loadavg", "/proc/meminfo", "/proc/pressure/cpu", "/proc/pressure/memory", "/proc/pressure/io",
		"/proc/filesystems", "/proc/modules", "/proc/sys/kernel/tainted", "/proc/sys/kernel/hung_task_timeout_secs", "/proc/sys/kernel/dmesg_restrict",
		"/proc/sys/kernel/kptr_restrict", "/proc/sys/kernel/perf_event_paranoid", "/proc/sys/kernel/unprivileged_bpf_disabled", "/proc/sys/net/core/bpf_jit_enable",
		"/sys/kernel/security/lockdown", "/sys/fs/cgroup/cgroup.controllers", "/etc/os-release",
	}
}

func (s *support) addKernel(context.Context) error {
	host := hostfs.New(s.hostRoot())
	var b strings.Builder
	for _, path := range kernelFacts() {
		text, err := readAtMost(host.Path(path), 256<<10)
		if err != nil {
			text = []byte("can't be read: " + err.Error())
		}
		fmt.Fprintf(&b, "== %s\n%s\n\n", path, bytes.TrimSpace(text))
	}
	btf := "there: BPF programs can be loaded"
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err != nil {
		btf = err.Error()
	}
	fmt.Fprintf(&b, "== /sys/kernel/btf/vmlinux\n%s\n", btf)
	return s.archive.Text("kernel.txt", "kernel, its settings, memory, load, modules", b.String())
}

func (s *support) addProcess(context.Context) error {
	const name = "process.txt"
	if s.process == nil {
		s.archive.Lack(name, errors.New("no agent runs that may be looked at"))
		return nil
	}
	pid := s.process.pid
	var b strings.Builder
	command, err := hostfs.New("/").Cmdline(pid)
	if err != nil {
		command = err.Error()
	}
	fmt.Fprintf(&b, "== command line\n%s\n\n", command)
	for _, file := range []string{"status", "limits", "cgroup", "io"} {
		text, err := readAtMost(procFile(pid, file), 64<<10)
		if err != nil {
			text = []byte("can't be read: " + err.Error())
		}
		fmt.Fprintf(&b, "== /proc/%d/%s\n%s\n\n", pid, file, bytes.TrimSpace(text))
	}
	if fds, err := os.ReadDir(procFile(pid, "fd")); err == nil {
		fmt.Fprintf(&b, "== open files\n%d\n", len(fds))
	}
	return s.archive.Text(name, "the agent's process", b.String())
}

// addLog adds the agent's log: a file, or what journald has of its unit.
func (s *support) addLog(ctx context.Context) error {
	const name = "agent.log"
	if s.process == nil {
		s.archive.Lack(name, errors.New("no agent runs that may be looked at"))
		return nil
	}
	text, what, err := agentLog(ctx, s.process.pid)
	if err != nil {
		s.archive.Lack(name, err)
		return nil
	}
	return s.archive.Text(name, what, text)
}

// maxLog bounds what is read of a log, its end.
const maxLog = 4 << 20

// agentLog reads where a process' standard error goes.
func agentLog(ctx context.Context, pid int) (text, what string, err error) {
	path := procFile(pid, "fd/2")
	target, err := os.Readlink(path)
	if err != nil {
		return "", "", err
	}
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
		text, err := readEnd(path, maxLog)
		return text, target, err
	}
	if unit := unitOf(pid); unit != "" {
		text, err := journalOf(ctx, unit)
		return text, "journald, unit " + unit, err
	}
	return "", "", fmt.Errorf("its standard error is %s, which nobody else can read: see kubectl logs, or where you started it", target)
}

// unitOf is the systemd service that a process is of; empty: of none.
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
		return "", fmt.Errorf("journalctl: %w: %s", o.Err, cmp.Or(string(o.StderrEnd), "nothing on the standard error"))
	}
	return string(o.Stdout), nil
}

// readAtMost reads a file up to a size.
func readAtMost(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most))
}

// readEnd reads the end of a file.
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
