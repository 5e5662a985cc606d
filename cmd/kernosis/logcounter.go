package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kernosis/kernosis/cmd/kernosis/agent"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/logpattern"
	"github.com/kernosis/kernosis/collector/logs"
	"github.com/kernosis/kernosis/collector/logs/file"
	"github.com/kernosis/kernosis/collector/logs/journald"
	"github.com/kernosis/kernosis/collector/logs/kmsg"
	"github.com/kernosis/kernosis/collector/logsource"
)

// logCount implements node-problem-detector's log-counter: its flags, message and decision.
type logCount struct {
	identifier, path string
	lookback, delay  time.Duration
	pattern, revert  string
	count            int
	format           file.Format

	set  *logpattern.Set
	hits logpattern.Hits
}

func newLogCounter() *cobra.Command {
	var c logCount
	cmd := newCheckCommand("log-counter", "Check program: count the log lines that match a pattern",
		`Count the lines of a log that match a pattern, as node-problem-detector's
log-counter does. The log is the journal (a folder, or no --log-path), the kernel's
log (/dev/kmsg) or a file.

Exit code 0: fewer matches than --count; 1: as many or more, with a message;
2: the log can't be read, it lost lines and there are fewer matches than --count,
or a flag is wrong.`,
		"  kernosis log-counter --journald-source kubelet --lookback 20m --count 5 --pattern 'Started kubelet'",
		c.run)
	fs := cmd.Flags()
	fs.StringVar(&c.identifier, "journald-source", "", "`name` (SYSLOG_IDENTIFIER) in the journal: kernel, kubelet, systemd …")
	fs.StringVar(&c.path, "log-path", "", "`path` of the journal's folder, /dev/kmsg, or a file (default: journald's journal)")
	fs.DurationVar(&c.lookback, "lookback", 0, "how far back to count, at most to the boot")
	fs.DurationVar(&c.delay, "delay", 0, "ignore lines logged within this time after the boot")
	fs.StringVar(&c.pattern, "pattern", "", "`regexp` (RE2) of the lines to count; it must match to the end of the line")
	fs.StringVar(&c.revert, "revert-pattern", "", "`regexp` of lines that each reduce the count by one")
	fs.IntVar(&c.count, "count", 1, "`number` of matches from which the check reports a problem")
	fs.StringVar(&c.format.Timestamp, "timestamp", "", "for a file: `regexp` whose last group is the time of a line")
	fs.StringVar(&c.format.TimestampFormat, "timestamp-format", "", "for a file: `layout` of that time, in the notation of Go's package time")
	fs.StringVar(&c.format.Message, "message", "", "for a file: `regexp` whose last group is the text of a line")
	return cmd
}

func (c *logCount) run(cmd *cobra.Command) error {
	if err := c.check(); err != nil {
		return err
	}
	// Lines logged from now on are counted by the next call.
	now := time.Now()
	found, err := c.find(cmd.Context(), now)
	if err != nil {
		return err
	}
	if found >= c.count {
		return answer(cmd, checkProblem, fmt.Sprintf("Found %d matching logs, which meets the threshold of %d", found, c.count))
	}
	return nil
}

// check compiles the patterns, and returns errors in the flags.
func (c *logCount) check() error {
	var errs []error
	if c.pattern == "" {
		errs = append(errs, errors.New("--pattern is required"))
	}
	if c.lookback <= 0 {
		errs = append(errs, fmt.Errorf("--lookback %v: want more than 0, or nothing is counted", c.lookback))
	}
	if c.delay < 0 {
		errs = append(errs, fmt.Errorf("--delay %v: want 0 or more", c.delay))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	patterns := []logpattern.Pattern{{Name: "--pattern", Expr: c.pattern, AnchorEnd: true, Lines: logpattern.MaxLines}}
	if c.revert != "" {
		patterns = append(patterns, logpattern.Pattern{Name: "--revert-pattern", Expr: c.revert, AnchorEnd: true, Lines: logpattern.MaxLines})
	}
	var err error
	c.set, err = logpattern.Compile(patterns)
	return err
}

// find counts the lines from the start of the period until now.
func (c *logCount) find(ctx context.Context, now time.Time) (found int, err error) {
	start := now.Add(-c.lookback)
	if stable := now.Add(c.delay - hostfs.BootTime()); start.Before(stable) {
		start = stable
	}
	if !start.Before(now) {
		return 0, nil // the node has just booted
	}
	read, err := c.reader(time.Since(start))
	if err != nil {
		return 0, err
	}
	matcher := c.set.NewMatcher("")
	var lost []string // why lines were lost
	err = read(ctx, func(item logs.Item) error {
		// Malformed and too long lines can't match: they have no time, or no end.
		if l := item.Loss; l != nil && l.Reason != logs.Malformed && l.Reason != logs.TooLong && !slices.Contains(lost, string(l.Reason)) {
			lost = append(lost, string(l.Reason))
		}
		// The reader's own lookback reaches a little further back, and a line of a file may
		// have no time.
		if item.Line == nil || item.Line.Time.Before(start) || item.Line.Time.After(now) {
			return nil
		}
		if matcher.Match(item.Line.Text, &c.hits) {
			for _, hit := range c.hits.Hits {
				found += 1 - 2*hit.Pattern // the revert pattern subtracts
			}
		}
		return nil
	})
	if err == nil && len(lost) > 0 && found < c.count {
		return found, fmt.Errorf("found %d matching logs, but the log lost lines (%s)", found, strings.Join(lost, ", "))
	}
	return found, err
}

// reader returns a function that reads the log once.
func (c *logCount) reader(lookback time.Duration) (func(context.Context, func(logs.Item) error) error, error) {
	root := os.Getenv(agent.HostRootEnv)
	path := logsource.KMsgPath(root, c.path)
	info, err := os.Stat(path)
	switch {
	case c.path == "" && c.identifier == "":
		return nil, errors.New("--journald-source or --log-path is required")
	case c.path == "" || c.path == journald.Folder && !journald.HasFiles(hostfs.New(root), c.path):
		// If the folder is empty, journald keeps its journal in memory.
		return c.journal(root, "", lookback)
	case err == nil && info.IsDir():
		return c.journal(root, c.path, lookback)
	case err == nil && info.Mode()&os.ModeCharDevice != 0:
		return kmsg.New(kmsg.Config{Path: path, Lookback: lookback}).Once, nil
	case c.format.Timestamp == "" && err != nil:
		return nil, err
	case c.format.Timestamp == "":
		return nil, errors.New("--timestamp and --timestamp-format are required for a file: they say where a line has its time")
	}
	// Only its reader resolves absolute links below the root, so it reports a missing file.
	r, err := file.New(file.Config{Path: c.path, Root: root, Format: c.format, Lookback: lookback})
	if err != nil {
		return nil, err
	}
	return r.Once, nil
}

func (c *logCount) journal(root, dir string, lookback time.Duration) (func(context.Context, func(logs.Item) error) error, error) {
	var f journald.Filter
	if c.identifier != "" {
		f.Identifiers = []string{c.identifier}
	}
	r, err := journald.New(journald.Config{Root: root, Directory: dir, Filter: f, Lookback: lookback})
	if err != nil {
		return nil, err
	}
	return r.Once, nil
}
