package agent

import (
	"fmt"

	"github.com/spf13/pflag"
)

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

// inertFlag is a flag without effect.
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
