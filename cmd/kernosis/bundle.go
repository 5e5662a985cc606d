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

	"github.com/spf13/cobra"

	"github.com/kernosis/kernosis/cmd/kernosis/agent"
	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/cmd/kernosis/status"
	"github.com/kernosis/kernosis/collector/bounded"
	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/process"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/reporter/journal"
)

type bundleFlags struct {
	access   agentAccess
	file     string
	features bool
}

func newBundle() *cobra.Command {
	f := &bundleFlags{}
	cmd := &cobra.Command{
		Use:   "bundle",
		Short: "Write a support archive: state, settings, rules, journal, metrics and log, without secrets",
		Long: `Write an archive to attach to a support request or bug report: status, features, the
agent's effective settings with their origins, its rules and mutes, the latest part of the
journal (8 MiB), metrics, diagnoses, kernel facts, and the agent's log if it can be read.
Its MANIFEST lists each file, and what could not be collected and why.

Secrets are removed: values of flags, variables and fields with names such as password,
passwords in URLs, authorization headers, tokens and private keys become [redacted].
Environment variables and kubeconfigs are not collected. Names of pods, devices and files
are: review the archive before you send it. docs/status.md lists the files.

Exit code: 0 written; 1 it can't be written; 2 bad usage.`,
		Example: `  sudo kernosis bundle
  kubectl -n kernosis exec POD -- kernosis bundle -o - >bundle.tar.gz    # POD of the agent on that node`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	fs := cmd.Flags()
	f.access.flags(fs)
	fs.StringVarP(&f.file, "output", "o", "", "`file` to write, which must not exist; - is the standard output (default kernosis-NODE-TIME.tar.gz)")
	fs.BoolVar(&f.features, "features", true, "load each BPF program briefly, to list what works on this kernel")
	return cmd
}

func (f *bundleFlags) run(ctx context.Context, stdout, stderr io.Writer) error {
	p, c, err := f.access.find()
	if err != nil {
		return fmt.Errorf("bundle: %w", err)
	}
	now := time.Now()
	name := bundleName(c.Node, now)
	w, report := stdout, stderr
	if f.file == "-" {
		if output.Terminal(stdout) != nil {
			return errors.New("--output: refusing to write the binary archive to a terminal: redirect the standard output")
		}
	} else {
		f.file = cmp.Or(f.file, name+".tar.gz")
		file, err := os.OpenFile(f.file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return output.Failed(fmt.Errorf("bundle: %w (-o names another file, -o - the standard output)", err))
		}
		defer file.Close()
		w, report = file, stdout
	}
	s := &support{process: p, c: c, features: f.features}
	s.archive = newArchive(w, name, fmt.Sprintf("Kernosis support archive of node %s, made %s by kernosis %s.\nAnything that looks like a secret is [redacted]; review the files before you send them.\n",
		display.Safe(c.Node, 253), now.UTC().Format(time.RFC3339), version), now)
	s.collect(ctx)
	if err := errors.Join(ctx.Err(), s.archive.close()); err != nil {
		if f.file != "-" {
			err = errors.Join(err, os.Remove(f.file))
		}
		return output.Failed(fmt.Errorf("bundle: %w", err))
	}
	fmt.Fprintf(report, "%s: %s", f.file, display.Count(s.archive.files.Len()-1, "file"))
	if n := s.archive.lacks.Len(); n > 0 {
		fmt.Fprintf(report, "; %d could not be collected, see %s", n, manifestName)
	}
	fmt.Fprintln(report)
	return nil
}

// bundleName returns the name of an archive, and of the folder in it.
func bundleName(node string, now time.Time) string {
	node = strings.Map(func(r rune) rune {
		if r == '-' || r == '.' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' {
			return r
		}
		return -1
	}, node)
	return "kernosis-" + cmp.Or(node, "node") + now.UTC().Format("-20060102-150405")
}

// support collects the files of a support archive.
type support struct {
	archive  *archive
	process  *agentProcess // nil if no agent runs
	c        status.Config
	features bool
}

type bundled struct {
	name string
	read reader
}

// reader returns the description and content of a file.
type reader func(context.Context) (what, text string, err error)

// outputOf returns a reader of what a command writes.
func outputOf(command string, write func(io.Writer) error) reader {
	return func(context.Context) (what, text string, err error) {
		var b strings.Builder
		err = write(&b)
		return command, b.String(), err
	}
}

// collect adds all files, until ctx ends.
func (s *support) collect(ctx context.Context) {
	state := status.NewReader(s.c).Read(ctx)
	files := []bundled{
		{"version.txt", func(context.Context) (what, text string, err error) { return "this program", thisBuild().String(), nil }},
		{"status.txt", outputOf("kernosis status -o wide", func(w io.Writer) error {
			return state.WriteText(w, status.View{Wide: true})
		})},
		{"status.json", outputOf("kernosis status -o json", func(w io.Writer) error {
			return output.WriteJSON(w, state)
		})},
		{"healthz.txt", s.page("healthz")},
		{"readyz.txt", s.page("readyz")},
		{"metrics.txt", s.page("metrics")},
		{"features.txt", s.readFeatures},
		{"config.yaml", s.readSettings},
		{"rules.txt", s.readRules},
	}
	files = append(files, s.ruleFiles(ctx)...)
	files = append(files, []bundled{
		{"mutes.yaml", s.readMutes},
		{"journal.jsonl", s.readJournal},
		{"diagnoses.txt", s.readDiagnoses},
		{"kernel.txt", s.readKernel},
		{"process.txt", s.readProcess},
		{"agent.log", s.readLog},
	}...)
	for _, f := range files {
		if ctx.Err() != nil {
			return
		}
		what, text, err := f.read(ctx)
		if err != nil {
			s.archive.lack(f.name, err)
		} else {
			s.archive.add(f.name, what, text)
		}
	}
}

// readIn calls read, which reads dir, with a timeout, because dir's disk may hang.
func readIn[T any](ctx context.Context, reads *bounded.Calls, dir string, read func() (T, error)) (T, error) {
	return status.ReadFolder(ctx, reads, agent.StateWithin, dir, func(func() error) (T, error) { return read() })
}

// page returns a function that reads a page from the agent's HTTP endpoint.
func (s *support) page(page string) reader {
	return func(ctx context.Context) (what, text string, err error) {
		if s.c.Endpoint == nil {
			return "", "", errors.New("the agent has no HTTP endpoint")
		}
		code, raw, err := s.c.Endpoint.Get(ctx, "/"+page)
		if err == nil && page == "metrics" && code != 200 {
			err = fmt.Errorf("%s/%s answers %d: %s (--token-file)", s.c.Endpoint, page, code, raw)
		}
		return fmt.Sprintf("%s/%s, code %d", s.c.Endpoint, page, code), string(raw), err
	}
}

func (s *support) readFeatures(ctx context.Context) (what, text string, err error) {
	if !s.features {
		return "", "", errors.New("--features=false")
	}
	f, err := readFeatures(s.hostRoot())
	if err != nil {
		return "", "", err
	}
	const command = "kernosis features -o wide, with the permissions of the user who made this archive"
	return outputOf(command, func(w io.Writer) error { return f.write(w, true, output.Colours{}) })(ctx)
}

// hostRoot returns the folder of the host's /proc and /sys.
func (s *support) hostRoot() string {
	if s.process == nil || s.process.err != nil {
		return "/"
	}
	return s.process.config.HostRoot
}

func (s *support) readDiagnoses(ctx context.Context) (what, text string, err error) {
	dirs := agent.RunsDirs(s.c.StateDir)
	views, err := readIn(ctx, s.c.Reads, s.c.StateDir, func() ([]*agent.Diagnosis, error) { return agent.ReadDiagnoses(dirs...) })
	if err != nil {
		return "", "", err
	}
	return outputOf("kernosis diagnose show -o wide", func(w io.Writer) error { return listDiagnoses(w, views, true) })(ctx)
}

func (s *support) readMutes(ctx context.Context) (what, text string, err error) {
	path := s.process.mutesPath(s.c.StateDir)
	raw, err := readIn(ctx, s.c.Reads, filepath.Dir(path), func() ([]byte, error) { return agent.ReadMutes(path) })
	return path, string(raw), err
}

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
		err = redactYAML(doc)
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
		s.archive.lack("rules", err)
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
	raw, err := readIn(ctx, s.c.Reads, s.c.StateDir, func() ([]byte, error) { return journal.Tail(dir, maxBundled) })
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
		section(&b, host, path)
	}
	btf := "present: BPF programs can be loaded"
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err != nil {
		btf = err.Error()
	}
	fmt.Fprintf(&b, "== /sys/kernel/btf/vmlinux\n%s\n", btf)
	return "kernel, its settings, memory, load, modules", b.String(), nil
}

// section adds the content of a host's file below its path. Links lead below the host's root.
func section(b *strings.Builder, host hostfs.FS, path string) {
	const most = 256 << 10 // more than any of these files has
	text, err := host.ReadFile(path, most)
	if err != nil {
		text = []byte("can't be read: " + err.Error())
	}
	fmt.Fprintf(b, "== %s\n%s\n\n", path, bytes.TrimSpace(text))
}

func (s *support) readProcess(context.Context) (what, text string, err error) {
	if s.process == nil {
		return "", "", errNoAgent
	}
	pid := s.process.pid
	var b strings.Builder
	own := hostfs.New("/")
	command, err := own.Cmdline(pid)
	if err != nil {
		command = err.Error()
	}
	fmt.Fprintf(&b, "== command line\n%s\n\n", command)
	for _, file := range []string{"status", "limits", "cgroup", "io"} {
		section(&b, own, procFile(pid, file))
	}
	if fds, err := os.ReadDir(procFile(pid, "fd")); err == nil {
		fmt.Fprintf(&b, "== open files\n%d\n", len(fds))
	}
	return "the agent's process", b.String(), nil
}

var errNoAgent = errors.New("no agent is running, or its process can't be read") //nolint:gochecknoglobals // a constant

const maxLog = 4 << 20

// readLog reads the agent's log: the file or journal to which its standard error goes.
func (s *support) readLog(ctx context.Context) (what, text string, err error) {
	if s.process == nil {
		return "", "", errNoAgent
	}
	pid := s.process.pid
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
