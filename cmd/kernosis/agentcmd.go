package main

import (
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/npd"
)

func newAgentCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Detect faults on a node, with node-problem-detector's configuration and interfaces",
		Long: `Does what "kernosis run" does, and takes node-problem-detector's flags and
files: its monitors' rules, checks and statistics, its metrics and its
/conditions. See docs/npd.md.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadConfig(cmd)
			if err != nil {
				return err
			}
			if cfg.npd, err = loadNPD(cmd.Flags(), cfg); err != nil {
				return err
			}
			return run(cmd.Context(), cfg, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	runFlags(cmd.Flags())
	npdFlags(cmd.Flags())
	// Its two addresses stand for this one.
	listen := cmd.Flags().Lookup("listen")
	listen.DefValue = ""
	_ = listen.Value.Set("") // a text can't be wrong
	return cmd
}

const (
	flagSystemLog    = "config.system-log-monitor"
	flagCustomPlugin = "config.custom-plugin-monitor"
	flagSystemStats  = "config.system-stats-monitor"
)

// npdFlags are node-problem-detector's.
func npdFlags(fs *pflag.FlagSet) {
	fs.StringSlice(flagSystemLog, nil, "`files` of node-problem-detector's system-log-monitor, comma separated")
	fs.StringSlice(flagCustomPlugin, nil, "`files` of its custom-plugin-monitor")
	fs.StringSlice(flagSystemStats, nil, "`files` of its system-stats-monitor")
	fs.String("address", "127.0.0.1", "`address` of /healthz, /conditions and /debug/pprof")
	fs.Uint16("port", 20256, "`port` of these; 0: none")
	fs.String("prometheus-address", "127.0.0.1", "`address` of /metrics")
	fs.Uint16("prometheus-port", 20257, "`port` of /metrics; 0: none")
}

// npdConfig is what node-problem-detector's flags and files say. A nil one is that
// of an agent without them.
type npdConfig struct {
	files   []*npd.File
	status  string // host:port of /healthz, /conditions and pprof; "": none
	metrics string // host:port of /metrics; "": none
}

func loadNPD(fs *pflag.FlagSet, cfg config) (*npdConfig, error) {
	c := &npdConfig{}
	var errs []error
	for _, k := range []struct {
		flag string
		kind npd.Kind
	}{{flagSystemLog, npd.SystemLog}, {flagCustomPlugin, npd.CustomPlugin}, {flagSystemStats, npd.SystemStats}} {
		paths, err := fs.GetStringSlice(k.flag)
		errs = append(errs, err)
		for _, path := range paths {
			f, err := npd.LoadFile(path, npd.Options{Kind: k.kind})
			if err != nil {
				errs = append(errs, fmt.Errorf("--%s: %w", k.flag, err))
				continue
			}
			c.files = append(c.files, f)
		}
	}
	address := func(host, port string) string {
		h, err := fs.GetString(host)
		p, portErr := fs.GetUint16(port)
		errs = append(errs, err, portErr)
		if p == 0 {
			return ""
		}
		return net.JoinHostPort(h, strconv.Itoa(int(p)))
	}
	c.status = address("address", "port")
	c.metrics = address("prometheus-address", "prometheus-port")
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	_, _, err := c.rules(cfg)
	return c, err
}

// rules returns the rules in force, and what else the files ask for: the shipped
// rules, those of the files over them, the operator's over all.
func (c *npdConfig) rules(cfg config) (*detector.RuleSet, *npd.Set, error) {
	shipped, err := shippedRules(cfg.ShippedRules)
	if err != nil {
		return nil, nil, err
	}
	under, err := loadLayers(cfg.RulesDir, shipped)
	if err != nil || c == nil || len(c.files) == 0 {
		return under, &npd.Set{}, err
	}
	set, err := npd.Convert(c.files, under)
	if err != nil {
		return nil, nil, err
	}
	rules, err := loadLayers(cfg.RulesDir, shipped, set.Layer())
	return rules, set, err
}
