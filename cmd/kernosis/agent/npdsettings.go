package agent

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/kernosis/kernosis/cmd/kernosis/config"
	"github.com/kernosis/kernosis/detector/npd"
)

// Flags adds the flags of "kernosis agent": those of run, some with other defaults, and its own.
func Flags(fs *pflag.FlagSet) {
	RunFlags(fs)
	npdFlags(fs)
	kubeFlags(fs)
	inertFlags(fs)
	fs.SetNormalizeFunc(npdNames)
	fallback := func(name, value string) {
		f := fs.Lookup(name)
		f.DefValue = value
		_ = f.Value.Set(value) // any text is valid
	}
	fallback("listen", "") // served at node-problem-detector's two addresses instead
	fallback("report-socket", "/run/kernosis/report.sock")
}

// npdNames maps names of node-problem-detector's flags to their names here.
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
	FlagSystemLog    = "config.system-log-monitor"
	FlagCustomPlugin = "config.custom-plugin-monitor"
	FlagSystemStats  = "config.system-stats-monitor"
)

// NPDSettings are the values of node-problem-detector's flags.
type NPDSettings struct {
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
	fs.StringSlice(FlagSystemLog, nil, "`files` of node-problem-detector's system-log-monitor, comma separated")
	fs.StringSlice(FlagCustomPlugin, nil, "`files` of its custom-plugin-monitor")
	fs.StringSlice(FlagSystemStats, nil, "`files` of its system-stats-monitor")
	fs.String("address", "127.0.0.1", "`address` of /healthz, /conditions and /debug/pprof")
	fs.Uint16("port", 20256, "`port` of these; 0: none")
	fs.String("prometheus-address", "127.0.0.1", "`address` of /metrics and the web page")
	fs.Uint16("prometheus-port", 20257, "`port` of /metrics; 0: none")
	fs.String("exporter.stackdriver", "", "`file` of a Stackdriver exporter: not supported")
}

// check refuses settings that would silently have no effect, and invalid addresses to listen at.
func (s *NPDSettings) check(from config.Origins) error {
	var errs []error
	if s.Stackdriver != "" {
		errs = append(errs, from.Errorf("exporter.stackdriver", "Stackdriver is not supported: scrape /metrics, and remove the flag"))
	}
	for _, at := range []struct {
		key, host string
		port      uint16
	}{{"address", s.Address, s.Port}, {"prometheus-address", s.PrometheusAddress, s.PrometheusPort}} {
		if _, err := netip.ParseAddr(at.host); err != nil && at.port != 0 && strings.ContainsAny(at.host, ":[]") {
			errs = append(errs, from.Errorf(at.key, "%q: want an address without a port, for example 127.0.0.1", at.host))
		}
	}
	return errors.Join(errs...)
}

// readNPD reads the files that node-problem-detector's flags name.
func (c *Config) readNPD() error {
	var errs []error
	for _, k := range []struct {
		key   string
		paths []string
		kind  npd.Kind
	}{
		{FlagSystemLog, c.NPD.SystemLog, npd.SystemLog},
		{FlagCustomPlugin, c.NPD.CustomPlugin, npd.CustomPlugin},
		{FlagSystemStats, c.NPD.SystemStats, npd.SystemStats},
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

// address returns host:port, or "" if port is 0.
func address(host string, port uint16) string {
	if port == 0 {
		return ""
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// inertFlags adds flags of node-problem-detector that have no effect here, so that its command lines
// work: those for waiting for the API server, and for logging.
func inertFlags(fs *pflag.FlagSet) {
	for _, f := range inert() {
		short := ""
		if len(f.name) == 1 { // as in node-problem-detector, whose -v is --v
			short = f.name
		}
		fs.StringP(f.name, short, "", f.why)
		added := fs.Lookup(f.name)
		added.Hidden, added.NoOptDefVal = true, f.alone
	}
}

type inertFlag struct {
	name  string
	alone string // the value if the flag is given without one; "": it needs one
	quiet bool   // what it asks for is the case anyway, so there is no warning
	why   string
}

func inert() []inertFlag {
	const logs = "the log is written to the standard error; see --log-level"
	const waits = "the agent never waits for the API server, and retries until it is reachable"
	return []inertFlag{
		{name: "apiserver-wait-timeout", why: waits, quiet: true},
		{name: "apiserver-wait-interval", why: waits, quiet: true},
		{name: "logtostderr", alone: "true", why: logs, quiet: true},
		{name: "alsologtostderr", alone: "true", why: logs, quiet: true},
		{name: "v", why: logs},
		{name: "vmodule", why: logs},
		{name: "stderrthreshold", why: logs},
		{name: "log_dir", why: logs},
		{name: "log_file", why: logs},
		{name: "log_file_max_size", why: logs},
		{name: "log_backtrace_at", why: logs},
		{name: "add_dir_header", alone: "true", why: logs},
		{name: "one_output", alone: "true", why: logs},
		{name: "skip_headers", alone: "true", why: logs},
		{name: "skip_log_headers", alone: "true", why: logs},
		{name: "logging-format", why: logs},
	}
}

// withoutMeaning returns a warning for each given inert flag that asks for something the agent does
// not do.
func withoutMeaning(fs *pflag.FlagSet) (warnings []string) {
	for _, f := range inert() {
		if fs.Changed(f.name) && !f.quiet {
			warnings = append(warnings, fmt.Sprintf("--%s has no effect: %s", f.name, f.why))
		}
	}
	return warnings
}
