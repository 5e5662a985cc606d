package agent

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v4"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/cmd/kernosis/config"
	"github.com/kernosis/kernosis/collector"
	"github.com/kernosis/kernosis/detector/npd"
	"github.com/kernosis/kernosis/reporter/web"
)

// Config is the configuration of "kernosis run" and "kernosis agent", by flag, by environment
// (KERNOSIS_STATE_DIR for --state-dir) or by file; the first wins. See docs/configuration.md.
type Config struct {
	StateDir      string         `mapstructure:"state-dir" yaml:"state-dir"`
	Listen        string         `mapstructure:"listen" yaml:"listen"`
	Metrics       config.Metrics `mapstructure:",squash" yaml:",inline"`
	RulesDir      string         `mapstructure:"rules-dir" yaml:"rules-dir"`
	ShippedRules  []string       `mapstructure:"shipped-rules" yaml:"shipped-rules"`
	Mutes         string         `mapstructure:"mutes" yaml:"mutes"`
	Output        string         `mapstructure:"output" yaml:"output"`
	LogLevel      string         `mapstructure:"log-level" yaml:"log-level"`
	HostRoot      string         `mapstructure:"host-root" yaml:"host-root"`
	PinRoot       string         `mapstructure:"pin-root" yaml:"pin-root"`
	KeepAttached  bool           `mapstructure:"keep-attached" yaml:"keep-attached"`
	DropCaps      bool           `mapstructure:"drop-capabilities" yaml:"drop-capabilities"`
	HungTaskAfter time.Duration  `mapstructure:"hung-task-after" yaml:"hung-task-after"`
	Targets       []string       `mapstructure:"target" yaml:"target"`
	TargetsDir    string         `mapstructure:"targets-dir" yaml:"targets-dir"`
	JournalMiB    int64          `mapstructure:"journal-mib" yaml:"journal-mib"`
	Log           []string       `mapstructure:"log" yaml:"log"`
	ReportSocket  string         `mapstructure:"report-socket" yaml:"report-socket"`

	Probes   probeSettings    `mapstructure:",squash" yaml:",inline"`
	Diagnose diagnoseSettings `mapstructure:",squash" yaml:",inline"`

	// Only in the configuration file.
	Logs    []logConfig    `mapstructure:"-" yaml:"logs"`
	Reports []reportConfig `mapstructure:"-" yaml:"reports"`

	Services serviceSettings `mapstructure:"-" yaml:"services"`

	// Used by "kernosis agent" only. "kernosis run" accepts and ignores these keys, so that both
	// can share a file.
	NPD  NPDSettings  `mapstructure:",squash" yaml:",inline"`
	Kube KubeSettings `mapstructure:",squash" yaml:",inline"`

	services *services // the services in force
	npdFiles []*npd.File
	cluster  *cluster // nil without a cluster
	isAgent  bool
	origins  config.Origins // origin of each key's value
	warnings []string       // suspicious settings that are not errors
}

// RunFlags adds the flags of "kernosis run".
func RunFlags(fs *pflag.FlagSet) {
	fs.String("config", "", "`file` with these settings as YAML (state-dir: …)")
	fs.String("state-dir", "/var/lib/kernosis", "`folder` of the journal and other state that survives restarts")
	fs.String("listen", "127.0.0.1:20257", "`address` of the web page, /metrics, /healthz and /readyz; empty: none")
	config.MetricsFlags(fs)
	fs.String("rules-dir", "", "`folder` of rule files, reloaded when they change; a rule replaces the shipped rule of the same name")
	fs.StringSlice("shipped-rules", []string{"*"}, "which `files` of shipped rules are in force: names without .yaml; * matches any text")
	fs.String("mutes", "", "`file` of mutes, reloaded when it changes; empty: mutes.yaml in the state-dir")
	fs.StringP("output", "o", "text", "`format` of the output: text or json")
	fs.String("log-level", "info", "`level` of the log: debug, info, warn or error")
	fs.String("host-root", "/", "`folder` of the host's /proc and /sys")
	fs.String("pin-root", bpf.DefaultPinRoot, "`folder` on a BPF filesystem that keeps programs and records across restarts; empty: none")
	fs.Bool("keep-attached", false, "leave the BPF programs attached at exit, so that the next start reads what happened in between")
	fs.Bool("drop-capabilities", true, "drop capabilities that these settings do not need; check programs and exec services keep them")
	fs.Duration("hung-task-after", 0, "report tasks blocked longer than this `duration`; 0: the kernel's hung_task_timeout_secs, or 120s")
	fs.StringSlice("target", nil, "probe target to watch, `address:port` (repeatable)")
	fs.String("targets-dir", "/run/kernosis/targets.d", "`folder` of files with probe targets, reloaded when they change")
	fs.StringSlice("log", nil, "log `source`: [NAME=]kmsg, [NAME=]journald, [NAME=]file:PATH, crash, or none (repeatable; default kmsg and crash)")
	fs.String("report-socket", "", "unix `socket` for configured problem daemons (reports:); empty: none")
	probeFlags(fs)
	diagnoseFlags(fs)
	fs.Int64("journal-mib", 64, "size limit of the journal in `MiB`")
}

// Load reads the settings of flags, environment and file.
func Load(fs *pflag.FlagSet, environ []string) (Config, error) {
	c := Config{isAgent: fs.Lookup(flagKubeExporter) != nil}
	var err error
	if c.origins, c.warnings, err = config.Load(fs, environ, &c); err != nil {
		return c, err
	}
	if c.isAgent {
		c.warnings = append(c.warnings, withoutMeaning(fs)...)
	}
	c.warnings = append(c.warnings, c.withoutCrash()...)
	c.defaultServices()
	return c, c.validate()
}

func (c *Config) validate() error {
	var errs []error
	wrong := func(key, format string, args ...any) { errs = append(errs, c.origins.Errorf(key, format, args...)) }
	if err := config.CheckListen(c.Listen); err != nil {
		wrong("listen", "%w", err)
	}
	if c.Output != "text" && c.Output != "json" {
		wrong("output", "%q: want text or json", c.Output)
	}
	if c.HungTaskAfter < 0 {
		wrong("hung-task-after", "%s, want 0 or more", c.HungTaskAfter)
	}
	if c.JournalMiB < 1 {
		wrong("journal-mib", "%d, want at least 1", c.JournalMiB)
	}
	if c.StateDir == "" {
		wrong("state-dir", "must not be empty")
	}
	if _, err := c.targets(); err != nil {
		wrong("target", "%w", err)
	}
	if _, err := c.logs(); err != nil {
		errs = append(errs, err)
	}
	if _, err := config.ParseLevel(c.LogLevel); err != nil {
		wrong("log-level", "%w", err)
	}
	errs = append(errs, c.Metrics.Check(c.origins), c.checkReports(), c.checkServices(), c.Probes.check(c.origins), c.Diagnose.check(c.origins, c.StateDir))
	if c.isAgent {
		errs = append(errs, c.Kube.check(c.origins), c.NPD.check(c.origins))
	}
	return errors.Join(errs...)
}

func (c *Config) targets() ([]collector.Target, error) {
	var targets []collector.Target
	for _, t := range c.Targets {
		ap, err := netip.ParseAddrPort(t)
		if err != nil {
			return nil, fmt.Errorf("%q: want ADDRESS:PORT with an IP address, for example 10.0.0.7:8080", t)
		}
		targets = append(targets, collector.Target{Name: t, Address: ap.Addr(), Port: ap.Port()})
	}
	return targets, nil
}

// Endpoint returns the URL where an agent with this configuration serves /metrics, preferably at a
// loopback address. It is empty if /metrics is not served.
func (c *Config) Endpoint() string {
	listens := []string{c.Listen}
	if c.isAgent {
		listens = append(listens, address(c.NPD.PrometheusAddress, c.NPD.PrometheusPort))
	}
	best := ""
	for _, listen := range listens {
		host, port, err := net.SplitHostPort(listen)
		if err != nil {
			continue // not served here
		}
		scheme := "https"
		if c.Metrics.Plain || web.Loopback(host) {
			scheme = "http"
		}
		if host == "" || host == "0.0.0.0" || host == "::" {
			host = "127.0.0.1" // it listens on all addresses
		}
		if best == "" || scheme == "http" {
			best = scheme + "://" + net.JoinHostPort(host, port)
		}
	}
	return best
}

// Warnings returns suspicious settings that are not errors.
func (c *Config) Warnings() []string { return c.warnings }

// Document returns a configuration with the origin of each value as a comment.
func (c *Config) Document() (*yaml.Node, error) {
	doc := &yaml.Node{Kind: yaml.MappingNode}
	return doc, c.nodes(reflect.ValueOf(c).Elem(), doc)
}

// nodes adds the keys of a struct with their values and origins.
func (c *Config) nodes(v reflect.Value, doc *yaml.Node) error {
	for field, value := range v.Fields() {
		name, inline, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		if inline == "inline" {
			if !c.isAgent && (field.Name == "NPD" || field.Name == "Kube") {
				continue // "kernosis run" ignores these keys
			}
			if err := c.nodes(value, doc); err != nil {
				return err
			}
			continue
		}
		if name == "" {
			continue
		}
		node := &yaml.Node{}
		if err := node.Encode(value.Interface()); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		key := &yaml.Node{Kind: yaml.ScalarNode, Value: name}
		origin := c.OriginOf(name)
		// The comment goes behind a scalar, and above a value that takes several lines.
		if node.Kind == yaml.ScalarNode {
			node.LineComment = "# " + origin
		} else {
			node.Style = yaml.FlowStyle
			if name == "logs" || name == "reports" || name == "services" {
				node.Style = 0
			}
			key.HeadComment = "# " + origin
		}
		if len(node.Content) == 0 && node.Kind == yaml.SequenceNode {
			node.Style = yaml.FlowStyle
		}
		doc.Content = append(doc.Content, key, node)
	}
	return nil
}

// OriginOf returns the origin of a key's value, and for an empty node-name the name that is used.
func (c *Config) OriginOf(key string) string {
	origin := cmp.Or(c.origins[key], config.Default)
	if key != flagNodeName || c.Kube.NodeName != "" || !c.Kube.Exporter {
		return origin
	}
	name, from, err := c.Kube.ResolveNodeName(c.origins)
	if err != nil {
		return origin + "; " + err.Error()
	}
	return fmt.Sprintf("%s: %s, %s", origin, name, from)
}
