package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/kernosis/kernosis/cmd/kernosis/config"
	"github.com/kernosis/kernosis/diagnose/controller"
	"github.com/kernosis/kernosis/diagnose/controller/start"
	"github.com/kernosis/kernosis/reporter/kube/conditions"
	"github.com/kernosis/kernosis/reporter/kube/liveness"
)

// controllerConfig is the configuration of "kernosis controller", by flag, by environment
// (KERNOSIS_SILENT_AFTER for --silent-after) or by file; the first wins.
type controllerConfig struct {
	Kubeconfig     string         `mapstructure:"kubeconfig" yaml:"kubeconfig"`
	QPS            float32        `mapstructure:"kube-api-qps" yaml:"kube-api-qps"`
	Burst          int            `mapstructure:"kube-api-burst" yaml:"kube-api-burst"`
	Namespace      string         `mapstructure:"namespace" yaml:"namespace"`
	AgentPods      string         `mapstructure:"agent-pods" yaml:"agent-pods"`
	ConditionTypes []string       `mapstructure:"condition-types" yaml:"condition-types"`
	SilentAfter    time.Duration  `mapstructure:"silent-after" yaml:"silent-after"`
	DrainingGrace  time.Duration  `mapstructure:"draining-grace" yaml:"draining-grace"`
	StartUpGrace   time.Duration  `mapstructure:"start-up-grace" yaml:"start-up-grace"`
	PodWait        time.Duration  `mapstructure:"pod-wait" yaml:"pod-wait"`
	PendingSilent  time.Duration  `mapstructure:"pending-silent" yaml:"pending-silent"`
	RunningSilent  time.Duration  `mapstructure:"running-silent" yaml:"running-silent"`
	MaxEnded       int            `mapstructure:"max-ended-diagnoses" yaml:"max-ended-diagnoses"`
	Workers        int            `mapstructure:"workers" yaml:"workers"`
	SlowWrites     float64        `mapstructure:"slow-writes" yaml:"slow-writes"`
	Repairs        bool           `mapstructure:"repairs" yaml:"repairs"`
	LeaderElect    bool           `mapstructure:"leader-elect" yaml:"leader-elect"`
	LeaseDuration  time.Duration  `mapstructure:"leader-elect-lease-duration" yaml:"leader-elect-lease-duration"`
	RenewDeadline  time.Duration  `mapstructure:"leader-elect-renew-deadline" yaml:"leader-elect-renew-deadline"`
	RetryPeriod    time.Duration  `mapstructure:"leader-elect-retry-period" yaml:"leader-elect-retry-period"`
	MetricsListen  string         `mapstructure:"metrics-listen" yaml:"metrics-listen"`
	HealthListen   string         `mapstructure:"health-listen" yaml:"health-listen"`
	Metrics        config.Metrics `mapstructure:",squash" yaml:",inline"`
	LogLevel       string         `mapstructure:"log-level" yaml:"log-level"`

	Alerts start.AlertsConfig `mapstructure:",squash" yaml:",inline"`

	origins  config.Origins // origin of each key's value
	warnings []string       // suspicious settings that are not errors
}

func controllerFlags(fs *pflag.FlagSet) {
	fs.String("config", "", "`file` with these settings as YAML (silent-after: …)")
	fs.String("kubeconfig", "", "kubeconfig `file`; empty: the pod's service account")
	fs.Float32("kube-api-qps", 50, "`number` of requests a second to the API server")
	fs.Int("kube-api-burst", 100, "`number` of requests to the API server in a burst")
	fs.String("namespace", "", "`namespace` of the agents, their Leases and the election; empty: $POD_NAMESPACE, or kube-system")
	fs.String("agent-pods", liveness.DefaultPods, "label `selector` of the agents' pods")
	fs.StringSlice("condition-types", nil, "condition `types` to set for agents that never reported; empty: those that most agents list")
	fs.Duration("silent-after", liveness.DefaultSilent, "how long after its last Lease renewal an agent counts as silent and its conditions become Unknown")
	fs.Duration("draining-grace", liveness.DefaultDraining, "the same for an agent that is shutting down")
	fs.Duration("start-up-grace", liveness.DefaultStartUp, "how long a new pod of the agent may take to report")
	fs.Duration("pod-wait", controller.DefaultPodWait, "how long a Diagnosis waits for its pod to be scheduled")
	fs.Duration("pending-silent", controller.DefaultPendingSilent, "how long a Diagnosis that has not started waits for a silent agent")
	fs.Duration("running-silent", controller.DefaultRunningSilent, "the same for a running Diagnosis, and the limit for an agent that reports but does not run it")
	fs.Int("max-ended-diagnoses", controller.DefaultMaxEnded, "`number` of completed Diagnoses to keep in the namespace; the oldest are deleted")
	fs.Int("workers", liveness.DefaultWorkers, "`number` of Nodes written, and Diagnoses reconciled, in parallel")
	fs.Float64("slow-writes", liveness.DefaultSlowRate, "`number` of Node writes per second in a zone where most agents are silent")
	fs.Bool("repairs", true, "make the repairs that change Nodes and pods, if a RemediationPolicy allows them; false: only report them")
	fs.Bool("leader-elect", true, "use leader election, so that several replicas may run")
	fs.Duration("leader-elect-lease-duration", 15*time.Second, "how long after the leader's last renewal another replica takes over")
	fs.Duration("leader-elect-renew-deadline", 10*time.Second, "how long the leader retries a renewal before it exits")
	fs.Duration("leader-elect-retry-period", 2*time.Second, "interval between renewal attempts")
	fs.String("metrics-listen", "127.0.0.1:20258", "`address` of /metrics; empty: none")
	config.MetricsFlags(fs)
	fs.String("health-listen", "127.0.0.1:20259", "`address` of /healthz and /readyz; empty: none")
	fs.String("log-level", "info", "`level` of the log: debug, info, warn or error")
	alertsFlags(fs)
}

func loadController(cmd *cobra.Command) (controllerConfig, error) {
	var c controllerConfig
	var err error
	if c.origins, c.warnings, err = config.Load(cmd.Flags(), os.Environ(), &c); err != nil {
		return c, err
	}
	c.Namespace = cmp.Or(c.Namespace, os.Getenv("POD_NAMESPACE"), "kube-system")
	return c, c.validate()
}

func (c *controllerConfig) validate() error {
	var errs []error
	wrong := func(key, format string, args ...any) { errs = append(errs, c.origins.Errorf(key, format, args...)) }
	if why := validation.IsDNS1123Label(c.Namespace); len(why) > 0 {
		wrong("namespace", "%q: %s", c.Namespace, why[0])
	}
	if err := config.CheckListen(c.MetricsListen); err != nil {
		wrong("metrics-listen", "%w", err)
	}
	if err := config.CheckListen(c.HealthListen); err != nil {
		wrong("health-listen", "%w", err)
	}
	if s, err := labels.Parse(c.AgentPods); err != nil {
		wrong("agent-pods", "%w", err)
	} else if s.Empty() {
		wrong("agent-pods", "want a selector that matches only the agents' pods")
	}
	for _, t := range c.ConditionTypes {
		if err := conditions.CheckType(t); err != nil {
			wrong("condition-types", "%w", err)
		}
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"silent-after", c.SilentAfter}, {"draining-grace", c.DrainingGrace}, {"start-up-grace", c.StartUpGrace},
		{"pod-wait", c.PodWait}, {"pending-silent", c.PendingSilent}, {"running-silent", c.RunningSilent}, {"leader-elect-retry-period", c.RetryPeriod}} {
		if d.value < 100*time.Millisecond {
			wrong(d.name, "%s, want at least 100ms", d.value)
		}
	}
	// Leader election requires this, because its tries are up to 1.2 periods apart.
	if c.LeaseDuration <= c.RenewDeadline {
		wrong("leader-elect-lease-duration", "%s, want more than leader-elect-renew-deadline %s", c.LeaseDuration, c.RenewDeadline)
	}
	if float64(c.RenewDeadline) <= 1.2*float64(c.RetryPeriod) {
		wrong("leader-elect-renew-deadline", "%s, want more than 1.2 times leader-elect-retry-period %s", c.RenewDeadline, c.RetryPeriod)
	}
	if c.MaxEnded < 1 {
		wrong("max-ended-diagnoses", "%d, want at least 1", c.MaxEnded)
	}
	if c.Workers < 1 {
		wrong("workers", "%d, want at least 1", c.Workers)
	}
	if !(c.SlowWrites > 0) || math.IsInf(c.SlowWrites, 0) {
		wrong("slow-writes", "%v, want more than 0", c.SlowWrites)
	}
	if !(c.QPS > 0) || math.IsInf(float64(c.QPS), 0) {
		wrong("kube-api-qps", "%v, want more than 0", c.QPS)
	}
	if c.Burst < 1 {
		wrong("kube-api-burst", "%d, want at least 1", c.Burst)
	}
	if _, err := config.ParseLevel(c.LogLevel); err != nil {
		wrong("log-level", "%w", err)
	}
	errs = append(errs, checkAlerts(&c.Alerts, c.origins), c.Metrics.Check(c.origins))
	return errors.Join(errs...)
}

func (c *controllerConfig) rest() (*rest.Config, error) {
	to, err := config.RESTConfig("", c.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("API server: %w", err)
	}
	to.QPS, to.Burst, to.UserAgent = c.QPS, c.Burst, "kernosis-controller/"+version
	return to, nil
}

func alertsFlags(fs *pflag.FlagSet) {
	fs.String("alerts-listen", "", "`address` that receives alerts from Alertmanager and Prometheus, such as :20260; empty: none")
	fs.String("alerts-cert-file", "", "`file` with the certificate for alerts-listen, in PEM; reloaded when it changes")
	fs.String("alerts-key-file", "", "`file` with its key")
	fs.String("alerts-audience", start.DefaultAudience, "`audience` that senders' tokens must have")
	fs.String("alerts-client-ca-file", "", "`file` with the CAs of senders' client certificates; empty: only tokens are accepted")
	fs.StringSlice("alerts-client-names", nil, "accepted `names` in client certificates: common name, DNS name or URI")
	fs.Bool("alerts-plain-http", false, "receive alerts without TLS, on a loopback address only")
}

func checkAlerts(c *start.AlertsConfig, from config.Origins) error {
	var errs []error
	if c.Listen == "" {
		for _, other := range []struct {
			key   string
			given bool
		}{
			{"alerts-cert-file", c.CertFile != ""}, {"alerts-key-file", c.KeyFile != ""}, {"alerts-client-ca-file", c.ClientCAFile != ""},
			{"alerts-client-names", len(c.ClientNames) > 0}, {"alerts-plain-http", c.Plain},
		} {
			if other.given {
				errs = append(errs, from.Errorf(other.key, "requires alerts-listen"))
			}
		}
		return errors.Join(errs...)
	}
	if c.Audience == "" {
		errs = append(errs, from.Errorf("alerts-audience", "must not be empty"))
	}
	return errors.Join(append(errs, c.Check(from.Errorf))...)
}
