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

	"github.com/kernosis/kernosis/cmd/kernosis/bundle"
	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/cmd/kernosis/status"
	"github.com/kernosis/kernosis/collector/display"
)

// bundleFlags are those of the command.
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
		Long: `Write a support archive for whoever helps with a problem: status, features, the agent's
effective settings with their origins, its rules and mutes, the latest part of the journal
(8 MiB), metrics, diagnoses, facts of the kernel, and the agent's log where it can be read.
The MANIFEST in it lists each file, and what could not be collected and why.

Secrets are removed: values of flags, variables and fields with such names, passwords in
URLs, authorization headers, tokens and private keys become [redacted]. Environment
variables and kubeconfigs are not collected. Names of pods, devices and files are: look
through the archive before you send it. docs/status.md lists the files.

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
	fs.BoolVar(&f.features, "features", true, "load each BPF program for a moment, to list what works on this kernel")
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
		if output.IsTerminal(stdout) {
			return errors.New("--output: the archive is not for a terminal: redirect the standard output")
		}
	} else {
		if f.file == "" {
			f.file = name + ".tar.gz"
		}
		file, err := os.OpenFile(f.file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return failed(fmt.Errorf("bundle: %w (-o names another file, -o - the standard output)", err))
		}
		defer file.Close()
		w, report = file, stdout
	}
	s := &support{process: p, c: c, features: f.features}
	s.archive = bundle.New(w, name, fmt.Sprintf("Kernosis support archive of node %s, made %s by kernosis %s.\nWhat looks like a secret is [redacted]; look through the files before you send them.\n",
		display.Safe(c.Node, 253), now.UTC().Format(time.RFC3339), version), now)
	if err := errors.Join(s.collect(ctx), s.archive.Close()); err != nil {
		if f.file != "-" {
			err = errors.Join(err, os.Remove(f.file))
		}
		return failed(fmt.Errorf("bundle: %w", err))
	}
	fmt.Fprintf(report, "%s: %s", f.file, display.Count(s.archive.Files(), "file"))
	if n := s.archive.Lacks(); n > 0 {
		fmt.Fprintf(report, "; %d could not be collected, see %s", n, bundle.ManifestName)
	}
	fmt.Fprintln(report)
	return nil
}

// bundleName is the name of an archive, and of the folder in it.
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

// support collects what is in a support archive.
type support struct {
	archive  *bundle.Archive
	process  *agentProcess // nil: no agent runs
	c        status.Config
	features bool
}

// collect adds all files. The only errors are of writing.
func (s *support) collect(ctx context.Context) error {
	for _, add := range []func(context.Context) error{
		s.addVersion, s.addStatus, s.addPages, s.addFeatures, s.addSettings, s.addRules, s.addMutes, s.addJournal,
		s.addDiagnoses, s.addKernel, s.addProcess, s.addLog,
	} {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := add(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *support) addVersion(context.Context) error {
	return s.archive.Text("version.txt", "this program", thisBuild().String())
}

func (s *support) addStatus(ctx context.Context) error {
	state := status.NewReader(s.c).Read(ctx)
	var text, doc strings.Builder
	err := state.WriteText(&text, status.View{Wide: true})
	if err == nil {
		err = output.WriteJSON(&doc, state)
	}
	if err != nil {
		s.archive.Lack("status.txt", err)
		return nil
	}
	return errors.Join(s.archive.Text("status.txt", "kernosis status -o wide", text.String()), s.archive.JSON("status.json", "kernosis status -o json", []byte(doc.String())))
}

// addPages adds what the agent serves.
func (s *support) addPages(ctx context.Context) error {
	var errs []error
	for _, page := range []string{"healthz", "readyz", "metrics"} {
		name := page + ".txt"
		if s.c.Endpoint == nil {
			s.archive.Lack(name, errors.New("the agent serves nowhere"))
			continue
		}
		code, text, err := s.c.Endpoint.Get(ctx, "/"+page)
		switch {
		case err != nil:
			s.archive.Lack(name, err)
		case page == "metrics" && code != 200:
			s.archive.Lack(name, fmt.Errorf("%s/%s answers %d: %s (--token-file)", s.c.Endpoint, page, code, text))
		default:
			errs = append(errs, s.archive.Text(name, fmt.Sprintf("%s/%s, code %d", s.c.Endpoint, page, code), string(text)))
		}
	}
	return errors.Join(errs...)
}

func (s *support) addFeatures(context.Context) error {
	const name = "features.txt"
	if !s.features {
		s.archive.Lack(name, errors.New("--features=false"))
		return nil
	}
	f, err := readFeatures(s.hostRoot())
	if err != nil {
		s.archive.Lack(name, err)
		return nil
	}
	var b strings.Builder
	if err := f.write(&b, true, output.Colours{}); err != nil {
		return err
	}
	return s.archive.Text(name, "kernosis features -o wide, with the rights of who made this archive", b.String())
}

// hostRoot is where the host's /proc and /sys are.
func (s *support) hostRoot() string {
	if s.process == nil || s.process.err != nil {
		return "/"
	}
	return s.process.config.HostRoot
}

func (s *support) addDiagnoses(ctx context.Context) error {
	const name = "diagnoses.txt"
	dirs := allDirs(s.c.StateDir)
	views, err := status.ReadFolder(ctx, s.c.Reads, stateWithin, s.c.StateDir, func(func() error) ([]*diagnosisView, error) { return readDiagnoses(dirs...) })
	if err != nil {
		s.archive.Lack(name, err)
		return nil
	}
	var b strings.Builder
	if err := listDiagnoses(&b, views, true); err != nil {
		return err
	}
	return s.archive.Text(name, "kernosis diagnose show -o wide", b.String())
}

func (s *support) addMutes(ctx context.Context) error {
	path := filepath.Join(s.c.StateDir, mutesName)
	if s.process != nil && s.process.err == nil {
		path = s.process.config.mutesPath()
	}
	text, err := status.ReadFolder(ctx, s.c.Reads, stateWithin, filepath.Dir(path), func(func() error) ([]byte, error) { return readMutes(path) })
	if err != nil {
		s.archive.Lack("mutes.yaml", err)
		return nil
	}
	return s.archive.Text("mutes.yaml", path, string(text))
}
