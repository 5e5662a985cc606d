package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v4"
	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/cmd/kernosis/agent"
	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/collector/bounded"
	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
)

type muteFlags struct {
	stateDir, file, rules, reason, until string
	where                                map[string]string
	lasts                                time.Duration
	end                                  bool
	format                               *output.Format // of the list of mutes
}

func newMute() *cobra.Command {
	var f muteFlags
	cmd := &cobra.Command{
		Use:   "mute [RULE]",
		Short: "Mute a rule temporarily, or list the mutes",
		Long: `Write a mute to the file that the agent of this machine reads, or end one. Without RULE,
list the mutes of the file. RULE is a rule that the agent would load on a restart
or, without an agent, a shipped rule. Muted problems stay open; their condition says Muted.`,
		Example: `  kernosis mute disk-io-error --where device.name=sdb --for 48h --reason 'replaced on Friday'
  kernosis mute                                                     # list mutes
  kernosis mute disk-io-error --where device.name=sdb --end`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeFirst(f.completeRule),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(firstOf(args), time.Now(), cmd.OutOrStdout())
		},
	}
	fs := cmd.Flags()
	f.format = output.Add(cmd)
	fs.StringVar(&f.stateDir, "state-dir", "", "state `folder` of the agent (default: of the agent that runs here, else "+defaultStateDir+")")
	fs.StringVar(&f.file, "mutes", "", "`file` of mutes (default: the one that the agent reads, else "+agent.MutesFile+" in the state folder)")
	fs.StringVar(&f.rules, "rules-dir", "", "`folder` of rule files over the shipped ones (default: the agent's rules)")
	fs.StringToStringVar(&f.where, "where", nil, "mute only problems with this `field=value` of the rule's groupBy; * matches any text (repeatable; default: all problems of the rule)")
	fs.DurationVar(&f.lasts, "for", 0, "`duration` of the mute")
	fs.StringVar(&f.until, "until", "", "`time` when the mute ends (RFC 3339)")
	fs.StringVar(&f.reason, "reason", "", "`text` that says why, shown in lists of mutes")
	fs.BoolVar(&f.end, "end", false, "end the mute of this rule and these fields")
	cmd.MarkFlagsMutuallyExclusive("for", "until", "end")
	_ = cmd.RegisterFlagCompletionFunc("where", f.completeWhere) // the flag exists
	return cmd
}

func (f *muteFlags) path() (string, error) {
	if f.file != "" {
		return f.file, nil
	}
	p, err := findAgent(f.stateDir)
	if err != nil {
		return "", err
	}
	return p.mutesPath(cmp.Or(f.stateDir, defaultStateDir)), nil
}

func (f *muteFlags) ruleSet() (*detector.RuleSet, error) {
	if f.rules != "" {
		return agent.LoadRules(f.rules)
	}
	p, err := findAgent(f.stateDir)
	switch {
	case err != nil:
		return nil, err
	case p == nil:
		return agent.LoadRules("")
	case p.err != nil:
		return nil, fmt.Errorf("settings of the agent (pid %d): %w (--rules-dir has its rules)", p.pid, p.err)
	}
	return p.config.RulesInForce()
}

func (f *muteFlags) run(rule string, now time.Time, out io.Writer) error {
	path, err := f.path()
	if err != nil {
		return fmt.Errorf("mute: %w", err)
	}
	// Listing or ending mutes needs no rules.
	var set *detector.RuleSet
	if rule != "" && !f.end {
		if set, err = f.ruleSet(); err != nil {
			return fmt.Errorf("mute: %w", err)
		}
	}
	var m problem.Mute
	if rule != "" {
		if m, err = f.mute(rule, now); err != nil {
			return err
		}
		lock, err := lockMutes(path)
		if err != nil {
			return output.Failed(fmt.Errorf("mutes: %w", err))
		}
		defer lock.Close()
	}
	old, list, err := readMutes(path)
	if err != nil {
		return err
	}
	if rule == "" {
		return output.Failed(listMutes(out, list, now, f.format))
	}
	text, ended, err := editMutes(old, list, m, f.end, now)
	if err != nil {
		return fmt.Errorf("mutes: %w", err)
	}
	if f.end && ended == 0 {
		return output.Failed(fmt.Errorf("no such mute in %s", path))
	}
	if err := check(path, text, set); err != nil {
		return err
	}
	if err := replaceFile(path, text); err != nil {
		return output.Failed(fmt.Errorf("mutes: %w", err))
	}
	if f.end {
		fmt.Fprintf(out, "%s: %s is no longer muted\n", path, rule)
	} else {
		fmt.Fprintf(out, "%s: %s is muted until %s\n", path, rule, m.Until.Format(time.RFC3339))
	}
	return nil
}

// readMutes returns the content of a file of mutes, and its mutes. A missing file has none.
func readMutes(path string) (text []byte, list []problem.Mute, err error) {
	text, err = agent.ReadMutes(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil, nil
	case err != nil:
		return nil, nil, fmt.Errorf("mutes: %w", err)
	case len(text) > 0:
		list, _, err = detector.ParseMutes(path, text, nil)
	}
	return text, list, err
}

// lockMutes locks the file of mutes against other editors until the lock is closed. It locks a
// separate file that is never removed, because each edit replaces the file of mutes.
func lockMutes(path string) (lock *os.File, err error) {
	lock, err = bounded.Do(&bounded.Calls{}, agent.StateWithin, func() (*os.File, error) {
		f, err := os.OpenFile(filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".lock"), os.O_CREATE|os.O_RDONLY, 0o644) //nolint:gosec // nothing is in it
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", f.Name(), err), f.Close())
		}
		return f, nil
	})
	if errors.Is(err, bounded.ErrLate) {
		err = fmt.Errorf("another command has kept %s locked for %v, or its disk hangs", path, agent.StateWithin)
	}
	return lock, err
}

// check returns the errors in a file; its last mute is new. For the other mutes it ignores unknown
// rules, because an upgrade may have removed them.
func check(path string, text []byte, rules *detector.RuleSet) error {
	list, unknown, err := detector.ParseMutes(path, text, rules)
	if err != nil {
		return err
	}
	added := fmt.Sprintf("mutes[%d].", len(list)-1)
	unknown = slices.DeleteFunc(unknown, func(e *document.Error) bool { return !strings.HasPrefix(e.Field, added) })
	return unknown.Err()
}

func (f *muteFlags) mute(rule string, now time.Time) (problem.Mute, error) {
	m := problem.Mute{Rule: rule, Where: f.where, Reason: f.reason}
	switch {
	case f.end:
		return m, nil
	case f.until != "":
		at, err := time.Parse(time.RFC3339, f.until)
		if err != nil {
			return m, fmt.Errorf("until: %q: want a time such as 2026-03-01T18:00:00Z", f.until)
		}
		m.Until = at
	case f.lasts > 0:
		m.Until = now.Add(f.lasts).UTC().Truncate(time.Second)
	default:
		return m, errors.New("one of --for, --until and --end is required")
	}
	if !m.Until.After(now) {
		return m, fmt.Errorf("until: %s is in the past", m.Until.Format(time.RFC3339))
	}
	if m.Reason == "" {
		return m, errors.New("--reason is required: it is shown with the mute")
	}
	return m, nil
}

type listedMute struct {
	problem.Mute
	Over bool `json:"over"`
}

func listMutes(out io.Writer, list []problem.Mute, now time.Time, format *output.Format) error {
	listed := []listedMute{}
	for _, m := range list {
		listed = append(listed, listedMute{m, !m.Until.After(now)})
	}
	return format.Write(out, listed, func() error {
		for _, m := range listed {
			state := "until "
			if m.Over {
				state = "ended "
			}
			fmt.Fprintf(out, "%s %s%s: %s\n", m.Subject(), state, m.Until.Format(time.RFC3339), m.Reason)
		}
		return nil
	})
}

// mutesHead is the content of a new file.
const mutesHead = "apiVersion: " + detector.APIVersion + "\nmutes: []\n"

// editMutes removes expired mutes, and mutes with the rule and fields of m, from the file, and adds m
// unless end is set. It keeps comments. list has the mutes of old; same is how many had m's rule and
// fields.
func editMutes(old []byte, list []problem.Mute, m problem.Mute, end bool, now time.Time) (text []byte, same int, err error) {
	if len(old) == 0 {
		old = []byte(mutesHead)
	}
	var doc yaml.Node
	if err := yaml.Load(old, &doc); err != nil {
		return nil, 0, err
	}
	root := doc.Content[0]
	var items *yaml.Node
	for i := 0; i+1 < len(root.Content); i += 2 {
		if root.Content[i].Value == "mutes" && root.Content[i+1].Kind == yaml.SequenceNode {
			items = root.Content[i+1]
		}
	}
	if items == nil {
		items = &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		root.Content = slices.DeleteFunc(root.Content, func(n *yaml.Node) bool { return n.Value == "mutes" || n.Kind == yaml.ScalarNode && n.Tag == "!!null" })
		root.Content = append(root.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: "mutes"}, items)
	}
	kept := items.Content[:0:0]
	for i, n := range items.Content {
		switch {
		case list[i].Rule == m.Rule && maps.Equal(list[i].Where, m.Where):
			same++
		case list[i].Until.After(now):
			kept = append(kept, n)
		}
	}
	if !end {
		var added yaml.Node
		if err := added.Encode(writtenMute{m.Rule, m.Where, m.Until.Format(time.RFC3339), strings.TrimSpace(m.Reason)}); err != nil {
			return nil, 0, err
		}
		kept = append(kept, &added)
	}
	items.Content, items.Style = kept, items.Style&^yaml.FlowStyle
	text, err = document.EncodeYAML(&doc)
	return text, same, err
}

// writtenMute is a mute in the file.
type writtenMute struct {
	Rule   string            `yaml:"rule"`
	Where  map[string]string `yaml:"where,omitempty"`
	Until  string            `yaml:"until"`
	Reason string            `yaml:"reason"`
}

// replaceFile writes a temporary file and renames it, so that an agent reads either the old or the
// new file.
func replaceFile(path string, text []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(text)
	if err = errors.Join(err, tmp.Chmod(0o644), tmp.Sync(), tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		os.Remove(tmp.Name()) //nolint:errcheck // the other error is reported
	}
	return err
}
