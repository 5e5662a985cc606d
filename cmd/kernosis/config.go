package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"
	"go.yaml.in/yaml/v4"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/collector"
)

// config is everything "kernosis run" can be told, by flag, by environment
// (KERNOSIS_STATE_DIR for --state-dir) or by file; the first wins.
type config struct {
	StateDir      string        `mapstructure:"state-dir" yaml:"state-dir"`
	Listen        string        `mapstructure:"listen" yaml:"listen"`
	RulesDir      string        `mapstructure:"rules-dir" yaml:"rules-dir"`
	ShippedRules  []string      `mapstructure:"shipped-rules" yaml:"shipped-rules"`
	Mutes         string        `mapstructure:"mutes" yaml:"mutes"`
	Output        string        `mapstructure:"output" yaml:"output"`
	LogLevel      string        `mapstructure:"log-level" yaml:"log-level"`
	HostRoot      string        `mapstructure:"host-root" yaml:"host-root"`
	PinRoot       string        `mapstructure:"pin-root" yaml:"pin-root"`
	KeepAttached  bool          `mapstructure:"keep-attached" yaml:"keep-attached"`
	HungTaskAfter time.Duration `mapstructure:"hung-task-after" yaml:"hung-task-after"`
	Targets       []string      `mapstructure:"target" yaml:"target"`
	TargetsDir    string        `mapstructure:"targets-dir" yaml:"targets-dir"`
	JournalMiB    int64         `mapstructure:"journal-mib" yaml:"journal-mib"`
	Log           []string      `mapstructure:"log" yaml:"log"`
	Logs          []logConfig   `mapstructure:"-" yaml:"logs"` // of the file alone

	npd *npdConfig // of "kernosis agent"
}

func runFlags(fs *pflag.FlagSet) {
	fs.String("config", "", "`file` with these settings as YAML (state-dir: …)")
	fs.String("state-dir", "/var/lib/kernosis", "`folder` of the journal and of what survives a restart")
	fs.String("listen", "127.0.0.1:20257", "`address` of /metrics, /healthz and /readyz; empty: none")
	fs.String("rules-dir", "", "`folder` of rule files, read again when they change; a rule replaces the shipped one of its name")
	fs.StringSlice("shipped-rules", []string{"*"}, "which `files` of shipped rules are in force: names without .yaml, * stands for any text")
	fs.String("mutes", "", "`file` of mutes, read again when it changes; empty: mutes.yaml in the state-dir")
	fs.StringP("output", "o", "text", "what is printed: `text` or json")
	fs.String("log-level", "info", "debug, info, warn or error")
	fs.String("host-root", "/", "where the host's /proc and /sys are")
	fs.String("pin-root", bpf.DefaultPinRoot, "`folder` on a BPF filesystem that keeps programs and records across restarts; empty: none")
	fs.Bool("keep-attached", false, "leave the programs attached at exit, so that the next start reads what happened in between")
	fs.Duration("hung-task-after", 0, "report a task blocked for `so long`; 0: the kernel's hung_task_timeout_secs, or 120s")
	fs.StringSlice("target", nil, "probe target to watch, `address:port`; may be repeated")
	fs.String("targets-dir", "/run/kernosis/targets.d", "`folder` of files with probe targets, read again when they change")
	fs.StringSlice("log", nil, "log to read, `kmsg, journald, file:/path` or none, with \"name=\" before it if need be; may be repeated (default kmsg)")
	fs.Int64("journal-mib", 64, "bound of the journal in `MiB`")
}

// loadConfig merges flags, environment and file, and checks the result.
func loadConfig(cmd *cobra.Command) (config, error) {
	v := viper.NewWithOptions(viper.KeyDelimiter("::")) // a dot is part of a flag's name
	v.SetEnvPrefix("KERNOSIS")
	v.SetEnvKeyReplacer(strings.NewReplacer("-", "_"))
	v.AutomaticEnv()
	if err := v.BindPFlags(cmd.Flags()); err != nil {
		return config{}, err
	}
	var logs []logConfig
	if path := v.GetString("config"); path != "" {
		var err error
		if logs, err = readConfigFile(v, path); err != nil {
			return config{}, err
		}
	}
	var c config
	if err := v.Unmarshal(&c); err != nil {
		return config{}, fmt.Errorf("configuration: %w", err)
	}
	c.Logs = logs
	return c, c.validate()
}

// readConfigFile checks the file strictly, with lines in its errors, before
// viper, which knows neither, reads it. The logs come from here: viper would
// fold the case of their keys.
func readConfigFile(v *viper.Viper, path string) ([]logConfig, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	dec.KnownFields(true)
	var c config
	if err := dec.Decode(&c); err != nil {
		return nil, fmt.Errorf("configuration %s: %w", path, err)
	}
	v.SetConfigType("yaml")
	if err := v.ReadConfig(bytes.NewReader(raw)); err != nil {
		return nil, fmt.Errorf("configuration %s: %w", path, err)
	}
	if err := placeLogs(c.Logs, path, raw); err != nil {
		return nil, err
	}
	return c.Logs, nil
}

func (c *config) validate() error {
	var errs []error
	if c.Output != "text" && c.Output != "json" {
		errs = append(errs, fmt.Errorf("output: %q is neither text nor json", c.Output))
	}
	if c.HungTaskAfter < 0 {
		errs = append(errs, fmt.Errorf("hung-task-after: %s is negative", c.HungTaskAfter))
	}
	if c.JournalMiB < 1 {
		errs = append(errs, fmt.Errorf("journal-mib: %d, want at least 1", c.JournalMiB))
	}
	if c.StateDir == "" {
		errs = append(errs, errors.New("state-dir: must not be empty"))
	}
	if _, err := c.targets(); err != nil {
		errs = append(errs, err)
	}
	if _, err := c.logs(); err != nil {
		errs = append(errs, err)
	}
	if _, err := parseLevel(c.LogLevel); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (c *config) targets() ([]collector.Target, error) {
	var targets []collector.Target
	for _, t := range c.Targets {
		ap, err := netip.ParseAddrPort(t)
		if err != nil {
			return nil, fmt.Errorf("target: %q is no address:port: %w", t, err)
		}
		targets = append(targets, collector.Target{Name: t, Address: ap.Addr(), Port: ap.Port()})
	}
	return targets, nil
}

func (c *config) collector() collector.Config {
	targets, _ := c.targets() // checked by validate
	return collector.Config{
		HostRoot: c.HostRoot, PinRoot: c.PinRoot, HungTaskAfter: c.HungTaskAfter,
		Targets: targets, TargetsDir: c.TargetsDir,
	}
}
