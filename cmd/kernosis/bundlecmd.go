package main

import (
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
	"github.com/kernosis/kernosis/cmd/kernosis/bundle"
	"github.com/kernosis/kernosis/cmd/kernosis/diagnosis"
	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/cmd/kernosis/status"
	"github.com/kernosis/kernosis/collector/bounded"
	"github.com/kernosis/kernosis/collector/display"
)

// bundleFlags are the flags of the command.
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
		if f.file == "" {
			f.file = name + ".tar.gz"
		}
		file, err := os.OpenFile(f.file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return output.Failed(fmt.Errorf("bundle: %w (-o names another file, -o - the standard output)", err))
		}
		defer file.Close()
		w, report = file, stdout
	}
	s := &support{process: p, c: c, features: f.features}
	s.archive = bundle.New(w, name, fmt.Sprintf("Kernosis support archive of node %s, made %s by kernosis %s.\nAnything that looks like a secret is [redacted]; review the files before you send them.\n",
		display.Safe(c.Node, 253), now.UTC().Format(time.RFC3339), version), now)
	s.collect(ctx)
	if err := errors.Join(ctx.Err(), s.archive.Close()); err != nil {
		if f.file != "-" {
			err = errors.Join(err, os.Remove(f.file))
		}
		return output.Failed(fmt.Errorf("bundle: %w", err))
	}
	fmt.Fprintf(report, "%s: %s", f.file, display.Count(s.archive.Files(), "file"))
	if n := s.archive.Lacks(); n > 0 {
		fmt.Fprintf(report, "; %d could not be collected, see %s", n, bundle.ManifestName)
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
	if node == "" {
		node = "node"
	}
	return "kernosis-" + node + now.UTC().Format("-20060102-150405")
}

// support collects the files of a support archive.
type support struct {
	archive  *bundle.Archive
	process  *agentProcess // nil if no agent runs
	c        status.Config
	features bool
}

// bundled is a file of the archive; read returns its description and content.
type bundled struct {
	name string
	read func(context.Context) (what, text string, err error)
}

// collect adds all files, until ctx ends.
func (s *support) collect(ctx context.Context) {
	state := status.NewReader(s.c).Read(ctx)
	files := []bundled{
		{"version.txt", func(context.Context) (what, text string, err error) { return "this program", thisBuild().String(), nil }},
		{"status.txt", func(context.Context) (what, text string, err error) {
			var b strings.Builder
			err = state.WriteText(&b, status.View{Wide: true})
			return "kernosis status -o wide", b.String(), err
		}},
		{"status.json", func(context.Context) (what, text string, err error) {
			var b strings.Builder
			err = output.WriteJSON(&b, state)
			return "kernosis status -o json", b.String(), err
		}},
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
			s.archive.Lack(f.name, err)
		} else {
			s.archive.Add(f.name, what, text)
		}
	}
}

// readIn calls read, which reads dir, with a timeout, because dir's disk may hang.
func readIn[T any](ctx context.Context, reads *bounded.Calls, dir string, read func() (T, error)) (T, error) {
	return status.ReadFolder(ctx, reads, agent.StateWithin, dir, func(func() error) (T, error) { return read() })
}

// page returns a function that reads a page from the agent's HTTP endpoint.
func (s *support) page(page string) func(context.Context) (what, text string, err error) {
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

func (s *support) readFeatures(context.Context) (what, text string, err error) {
	if !s.features {
		return "", "", errors.New("--features=false")
	}
	f, err := readFeatures(s.hostRoot())
	if err != nil {
		return "", "", err
	}
	var b strings.Builder
	err = f.write(&b, true, output.Colours{})
	return "kernosis features -o wide, with the permissions of the user who made this archive", b.String(), err
}

// hostRoot returns the folder of the host's /proc and /sys.
func (s *support) hostRoot() string {
	if s.process == nil || s.process.err != nil {
		return "/"
	}
	return s.process.config.HostRoot
}

func (s *support) readDiagnoses(ctx context.Context) (what, text string, err error) {
	dirs := diagnosis.Dirs(s.c.StateDir)
	views, err := readIn(ctx, s.c.Reads, s.c.StateDir, func() ([]*diagnosis.View, error) { return diagnosis.ReadAll(dirs...) })
	if err != nil {
		return "", "", err
	}
	var b strings.Builder
	err = listDiagnoses(&b, views, true)
	return "kernosis diagnose show -o wide", b.String(), err
}

func (s *support) readMutes(ctx context.Context) (what, text string, err error) {
	path := s.process.mutesPath(s.c.StateDir)
	raw, err := readIn(ctx, s.c.Reads, filepath.Dir(path), func() ([]byte, error) { return agent.ReadMutes(path) })
	return path, string(raw), err
}
