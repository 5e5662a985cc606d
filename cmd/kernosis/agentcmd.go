package main

import (
	"errors"
	"net"
	"os"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kernosis/kernosis/cmd/kernosis/config"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/npd"
)

func newAgentCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Detect faults on a node, with node-problem-detector's configuration and interfaces",
		Long: `Run as "kernosis run" does, report to the API server, and accept
node-problem-detector's flags and files: its monitors, checks, statistics,
metrics and /conditions. See docs/npd.md and docs/configuration.md.`,
		Example: `  kernosis agent --kubeconfig /etc/kernosis/kubeconfig --node-name worker-7
  kernosis agent --config /etc/kernosis/config.yaml --config.system-log-monitor /config/kernel-monitor.json`,
		Args:    cobra.NoArgs,
		Version: version, // node-problem-detector has --version
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadConfig(cmd, os.Environ())
			if err != nil {
				return err
			}
			if err := cfg.readNPD(); err != nil {
				return err
			}
			if err := cfg.connect(); err != nil {
				return err
			}
			cfg.warnings = append(cfg.warnings, withoutMeaning(cmd.Flags())...)
			return run(cmd.Context(), cfg, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	agentFlags(cmd)
	return cmd
}

// agentFlags are run's, with other defaults, and those of the agent alone.
func agentFlags(cmd *cobra.Command) {
	fs := cmd.Flags()
	runFlags(fs)
	npdFlags(fs)
	kubeFlags(fs)
	inertFlags(fs)
	fs.SetNormalizeFunc(npdNames)
	fallback := func(name, value string) {
		f := fs.Lookup(name)
		f.DefValue = value
		_ = f.Value.Set(value) // a text can't be wrong
	}
	fallback("listen", "") // node-problem-detector's two addresses stand for it
	fallback("report-socket", "/run/kernosis/report.sock")
	completeSettings(cmd)
}

// npdNames are node-problem-detector's names of flags that are called otherwise here.
func npdNames(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	switch name {
	case "hostname-override":
		name = flagNodeName
	case "k8s-exporter-heartbeat-period":
		name = flagHeartbeat
	}
	return pflag.NormalizedName(name)
}

const (
	flagSystemLog    = "config.system-log-monitor"
	flagCustomPlugin = "config.custom-plugin-monitor"
	flagSystemStats  = "config.system-stats-monitor"
)

// npdSettings are what node-problem-detector's flags say.
type npdSettings struct {
	SystemLog         []string `mapstructure:"config.system-log-monitor" yaml:"config.system-log-monitor"`
	CustomPlugin      []string `mapstructure:"config.custom-plugin-monitor" yaml:"config.custom-plugin-monitor"`
	SystemStats       []string `mapstructure:"config.system-stats-monitor" yaml:"config.system-stats-monitor"`
	Address           string   `mapstructure:"address" yaml:"address"`
	Port              uint16   `mapstructure:"port" yaml:"port"`
	PrometheusAddress string   `mapstructure:"prometheus-address" yaml:"prometheus-address"`
	PrometheusPort    uint16   `mapstructure:"prometheus-port" yaml:"prometheus-port"`
	Stackdriver       string   `mapstructure:"exporter.stackdriver" yaml:"exporter.stackdriver"`
}

func npdFlags(fs *pflag.FlagSet) {
	fs.StringSlice(flagSystemLog, nil, "`files` of node-problem-detector's system-log-monitor, comma separated")
	fs.StringSlice(flagCustomPlugin, nil, "`files` of its custom-plugin-monitor")
	fs.StringSlice(flagSystemStats, nil, "`files` of its system-stats-monitor")
	fs.String("address", "127.0.0.1", "`address` of /healthz, /conditions and /debug/pprof")
	fs.Uint16("port", 20256, "`port` of these; 0: none")
	fs.String("prometheus-address", "127.0.0.1", "`address` of /metrics and the web page")
	fs.Uint16("prometheus-port", 20257, "`port` of /metrics; 0: none")
	fs.String("exporter.stackdriver", "", "`file` of a Stackdriver exporter: refused, there is none")
}

// check refuses what would silently not be done.
func (s *npdSettings) check(from config.Origins) error {
	if s.Stackdriver != "" {
		return from.Errorf("exporter.stackdriver", "metrics are not sent to Stackdriver: scrape /metrics, and leave the flag out")
	}
	return nil
}

// readNPD reads the files that node-problem-detector's flags name.
func (c *agentConfig) readNPD() error {
	var errs []error
	for _, k := range []struct {
		key   string
		paths []string
		kind  npd.Kind
	}{
		{flagSystemLog, c.NPD.SystemLog, npd.SystemLog},
		{flagCustomPlugin, c.NPD.CustomPlugin, npd.CustomPlugin},
		{flagSystemStats, c.NPD.SystemStats, npd.SystemStats},
	} {
		for _, path := range k.paths {
			f, err := npd.LoadFile(path, npd.Options{Kind: k.kind})
			if err != nil {
				errs = append(errs, c.origins.Errorf(k.key, "%w", err))
				continue
			}
			c.npdFiles = append(c.npdFiles, f)
		}
	}
	return errors.Join(errs...)
}

// address is host:port; "" where there is no port.
func address(host string, port uint16) string {
	if port == 0 {
		return ""
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// rules returns the rules in force: the shipped ones, those of node-problem-detector's files over
// them, those of problem daemons and services, the operator's over all. The set is what else the
// files ask for.
func (c *agentConfig) rules() (*detector.RuleSet, *npd.Set, error) {
	shipped, err := shippedRules(c.ShippedRules)
	if err != nil {
		return nil, nil, err
	}
	reports, err := reportLayer(c.Reports)
	if err != nil {
		return nil, nil, err
	}
	services, err := serviceLayer(c.services.list())
	if err != nil {
		return nil, nil, err
	}
	rules, err := loadLayers(c.RulesDir, shipped, reports, services)
	if err != nil {
		return nil, nil, err
	}
	set := &npd.Set{}
	if len(c.npdFiles) > 0 {
		if set, err = npd.Convert(c.npdFiles, rules); err != nil {
			return nil, nil, err
		}
		if rules, err = loadLayers(c.RulesDir, shipped, set.Layer(), reports, services); err != nil {
			return nil, nil, err
		}
	}
	return rules, set, errors.Join(c.ownConditions(rules), c.ownServiceConditions(rules))
}
