package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kernosis/kernosis/cmd/kernosis/agent"
	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/cmd/kernosis/replay"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/npd"
)

type replayFlags struct {
	rules, mutes, format, log, boot, until string
	output                                 *output.Format
	npd                                    []string
	compare, verbose                       bool
}

func newReplay() *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "replay FILE",
		Short: "Run a recorded journal or a dump of the kernel's log through the rules",
		Long: `Run a recording through the rules and print what would have been reported. A recording
is a journal of Kernosis (its folder, a segment, or the output of "run -o json"), a dump of
the kernel's log (/dev/kmsg, or dmesg with times), of the systemd journal (journalctl -o
export or json), or a log file (--format plain reads any text). - is the standard input.

Time is taken from the records. Lines that can't be read are reported with file and line,
counted and skipped.`,
		Example: `  kernosis replay /var/lib/kernosis
  dmesg | kernosis replay - --rules rules -v`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(args[0], cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&f.rules, "rules", "", "`folder` of rule files over the shipped ones")
	fs.StringVar(&f.mutes, "mutes", "", "`file` of mutes, in place of recorded ones")
	f.output = output.AddNames(cmd, output.Text, output.JSON)
	fs.StringVar(&f.format, "format", "", "`format` of the recording: "+formatNames()+"; empty: detected from the first lines")
	completeFlag(cmd, "format", formats)
	fs.StringVar(&f.log, "log", "", "`name` of the log in rules (default: journald, syslog or kmsg, by the format; plain: the name of the file)")
	fs.StringSliceVar(&f.npd, "npd", nil, "node-problem-detector system log monitors (`files`) to try on the lines they would read")
	fs.StringVar(&f.boot, "boot", "", "`time` of boot (RFC 3339), for dumps that count from it")
	fs.StringVar(&f.until, "until", "", "stop at a `time` (RFC 3339), after a duration (90s), or a duration after the last record (+1h)")
	fs.BoolVar(&f.compare, "compare", false, "report where a journal recorded something else; the exit code is 1 then")
	fs.BoolVarP(&f.verbose, "verbose", "v", false, "also print inputs that match no rule, muted problems, and all conditions at the end")
	return cmd
}

func (f *replayFlags) config() (replay.Config, error) {
	var cfg replay.Config
	var err error
	if cfg.Format = replay.Format(f.format); f.format != "" && !slices.Contains(replay.Formats(), cfg.Format) {
		return cfg, fmt.Errorf("--format: %q: want one of %s", f.format, formatNames())
	}
	if f.boot != "" {
		if cfg.Boot, err = time.Parse(time.RFC3339, f.boot); err != nil {
			return cfg, fmt.Errorf("boot: %q: want a time such as 2026-01-02T15:04:05Z", f.boot)
		}
	}
	if cfg.Until, err = parseUntil(f.until); err != nil {
		return cfg, err
	}
	cfg.Log = f.log
	if len(f.npd) > 0 && f.log != "" {
		return cfg, errors.New("--log can't be used with --npd: each monitor says which log it reads")
	}
	if cfg.Rules, cfg.Monitors, err = f.ruleSet(); err != nil {
		return cfg, err
	}
	if f.mutes != "" {
		data, err := agent.ReadMutes(f.mutes)
		if err != nil {
			return cfg, fmt.Errorf("mutes: %w", err)
		}
		list, unknown, err := detector.ParseMutes(f.mutes, data, cfg.Rules)
		if err == nil {
			err = unknown.Err()
		}
		if err != nil {
			return cfg, err
		}
		cfg.Mutes = &list
	}
	cfg.Compare = f.compare
	return cfg, nil
}

func formatNames() string { return strings.Join(formats(), ", ") }

// ruleSet returns the rules in the same layers as the agent: the shipped rules, overridden by those
// of node-problem-detector's files, overridden by those of the folder.
func (f *replayFlags) ruleSet() (*detector.RuleSet, *replay.Monitors, error) {
	if len(f.npd) == 0 {
		set, err := agent.LoadRules(f.rules)
		return set, nil, err
	}
	var files []*npd.File
	for _, path := range f.npd {
		file, err := npd.LoadFile(path, npd.Options{Kind: npd.SystemLog})
		if err != nil {
			return nil, nil, err
		}
		files = append(files, file)
	}
	shipped, err := agent.LoadRules("")
	if err != nil {
		return nil, nil, err
	}
	monitors, err := replay.NewMonitors(files, shipped)
	if err != nil {
		return nil, nil, err
	}
	set, err := detector.LoadDir(f.rules, detector.Shipped(), monitors.Rules)
	if err == nil {
		monitors.NoteUnset(set)
	}
	return set, monitors, err
}

func parseUntil(s string) (*replay.Until, error) {
	if s == "" {
		return nil, nil //nolint:nilnil // no time to stop at is no error
	}
	if at, err := time.Parse(time.RFC3339, s); err == nil {
		return &replay.Until{At: at}, nil
	}
	d, err := time.ParseDuration(strings.TrimPrefix(s, "+"))
	if err != nil || d <= 0 {
		return nil, fmt.Errorf("until: %q: want a time (2026-01-02T15:04:05Z) or a duration (90s, +1h)", s)
	}
	if strings.HasPrefix(s, "+") {
		return &replay.Until{Past: d}, nil
	}
	return &replay.Until{After: d}, nil
}

func (f *replayFlags) run(path string, stdin io.Reader, stdout, stderr io.Writer) error {
	cfg, err := f.config()
	if err != nil {
		return err
	}
	paths, folder, err := replayed(path)
	if err != nil {
		return err
	}
	if folder && cfg.Format == "" {
		cfg.Format = replay.Journal // also of a segment that is empty or has only part of a line
	}
	out := bufio.NewWriter(stdout)
	w := replay.NewText(out, f.verbose)
	if f.output.Is(output.JSON) {
		w = replay.NewJSON(out, f.verbose)
	}
	cfg.Step = w.Step
	cfg.Bad = func(file string, line int, err error) { fmt.Fprintf(stderr, "%s:%d: %v\n", file, line, err) }
	cfg.Note = func(note string) { fmt.Fprintln(stderr, note) }
	if cfg.Monitors != nil {
		for _, note := range cfg.Monitors.Notes {
			cfg.Note(note)
		}
	}
	r := replay.New(cfg)
	for _, p := range paths {
		err := replayFile(r, p, stdin)
		if folder && errors.Is(err, fs.ErrNotExist) {
			continue // a running agent has removed it
		}
		if err != nil {
			return errors.Join(err, out.Flush())
		}
	}
	sum, err := r.End()
	if err == nil && sum.Lines == sum.Bad && (folder || sum.Lines > 0) { // a recording may be empty, but not a journal's folder
		return errors.Join(fmt.Errorf("%s: no line can be read as %s", path, sum.Format), out.Flush())
	}
	if err == nil {
		err = w.Summary(&sum)
	}
	if err := errors.Join(err, out.Flush()); err != nil {
		return output.Failed(err)
	}
	if sum.Differences > 0 {
		return &output.ExitError{Code: output.ExitFailed}
	}
	return nil
}

func replayFile(r *replay.Replay, path string, stdin io.Reader) error {
	if path == "-" {
		return r.File(replay.StandardInput, time.Now(), stdin)
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	return r.File(path, info.ModTime(), file)
}

// replayed returns the files to replay for a path. For a journal's folder, or a state directory with
// one, these are the journal's segments, oldest first, and folder is true.
func replayed(path string) (paths []string, folder bool, err error) {
	if path == "-" {
		return []string{path}, false, nil
	}
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return []string{path}, false, err
	}
	for _, dir := range []string{path, filepath.Join(path, agent.JournalDir)} {
		segments, err := filepath.Glob(filepath.Join(dir, "journal-*.jsonl"))
		if err != nil {
			return nil, false, err
		}
		if len(segments) > 0 {
			return segments, true, nil // Glob sorts, and segment names are in order
		}
	}
	return nil, false, fmt.Errorf("%s: no segments of a journal (journal-*.jsonl)", path)
}
