package agent

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/kernosis/kernosis/cmd/kernosis/config"
	"github.com/kernosis/kernosis/cmd/kernosis/output"
)

const (
	flagKubeExporter = "enable-k8s-exporter"
	flagNodeName     = "node-name"
	flagHeartbeat    = "heartbeat"
)

// KubeSettings configure how the agent uses the cluster. Keys that node-problem-detector has too
// have the same names.
type KubeSettings struct {
	Exporter        bool    `mapstructure:"enable-k8s-exporter" yaml:"enable-k8s-exporter"`
	Kubeconfig      string  `mapstructure:"kubeconfig" yaml:"kubeconfig"`
	Override        string  `mapstructure:"apiserver-override" yaml:"apiserver-override"`
	NodeName        string  `mapstructure:"node-name" yaml:"node-name"`
	QPS             float32 `mapstructure:"kube-api-qps" yaml:"kube-api-qps"`
	Burst           int     `mapstructure:"kube-api-burst" yaml:"kube-api-burst"`
	WriteEvents     bool    `mapstructure:"k8s-exporter-write-events" yaml:"k8s-exporter-write-events"`
	WriteConditions bool    `mapstructure:"k8s-exporter-update-node-conditions" yaml:"k8s-exporter-update-node-conditions"`
	EventNamespace  string  `mapstructure:"event-namespace" yaml:"event-namespace"`
	Namespace       string  `mapstructure:"namespace" yaml:"namespace"`
	DaemonSet       string  `mapstructure:"daemonset" yaml:"daemonset"`
	// Heartbeat is how often unchanged conditions are written; 0: never.
	Heartbeat time.Duration `mapstructure:"heartbeat" yaml:"heartbeat"`
	// LeaseDuration is how long the agent's Lease is valid, and LeaseRenew how often it is renewed;
	// LeaseDuration 0: no Lease.
	LeaseDuration time.Duration `mapstructure:"lease-duration" yaml:"lease-duration"`
	LeaseRenew    time.Duration `mapstructure:"lease-renew-interval" yaml:"lease-renew-interval"`
}

func kubeFlags(fs *pflag.FlagSet) {
	fs.Bool(flagKubeExporter, true, "report to the API server: conditions, Events and a Lease")
	fs.String("kubeconfig", "", "kubeconfig `file`; empty: the pod's service account")
	fs.String("apiserver-override", "", "`URL` of the API server, in node-problem-detector's notation: https://host:port?inClusterConfig=false&auth=kubeconfig")
	fs.String(flagNodeName, "", "`name` of this node's object (also --hostname-override); empty: $NODE_NAME, or the host's name")
	// An idle node makes four requests a minute; a storm, a few a second.
	fs.Float32("kube-api-qps", 20, "`number` of requests a second to the API server")
	fs.Int("kube-api-burst", 40, "`number` of requests to the API server in a burst")
	fs.Bool("k8s-exporter-write-events", true, "write Events")
	fs.Bool("k8s-exporter-update-node-conditions", true, "write conditions of the node")
	fs.String("event-namespace", "", "`namespace` of Events on the node; empty: default. Events on pods are in the pod's namespace")
	fs.String("namespace", "", "`namespace` of the agent's Lease, the same as the controller's; empty: $POD_NAMESPACE, or kube-system")
	fs.String("daemonset", "", "`name` of this pod's DaemonSet in that namespace: with --keep-attached, programs stay attached while it exists")
	fs.Duration(flagHeartbeat, 5*time.Minute, "how often unchanged conditions are written (also --k8s-exporter-heartbeat-period); 0: never, the Lease shows that the agent is alive")
	fs.Duration("lease-duration", 40*time.Second, "how long the agent's Lease is valid; 0: no Lease")
	fs.Duration("lease-renew-interval", 15*time.Second, "how often the Lease is renewed")
}

// minHeartbeat is bounded because each heartbeat writes the whole node, some 10 KiB in etcd.
const minHeartbeat = 10 * time.Second

func (k *KubeSettings) check(from config.Origins) error {
	var errs []error
	wrong := func(key, format string, args ...any) { errs = append(errs, from.Errorf(key, format, args...)) }
	name := func(key, value, what string, mistakes func(string) []string) {
		if why := mistakes(value); value != "" && len(why) > 0 {
			wrong(key, "%q is not a valid name of a %s: %s", value, what, why[0])
		}
	}
	name(flagNodeName, k.NodeName, "node", validation.IsDNS1123Subdomain)
	name("event-namespace", k.EventNamespace, "namespace", validation.IsDNS1123Label)
	name("namespace", k.Namespace, "namespace", validation.IsDNS1123Label)
	name("daemonset", k.DaemonSet, "DaemonSet", validation.IsDNS1123Subdomain)
	if !(k.QPS > 0) || math.IsInf(float64(k.QPS), 0) { // NaN is not more than 0
		wrong("kube-api-qps", "%v, want more than 0", k.QPS)
	}
	if k.Burst < 1 {
		wrong("kube-api-burst", "%d, want at least 1", k.Burst)
	}
	if k.Heartbeat != 0 && k.Heartbeat < minHeartbeat {
		wrong(flagHeartbeat, "%v, want 0 or at least %v", k.Heartbeat, minHeartbeat)
	}
	switch d := k.LeaseDuration; {
	case d == 0:
	case d < 5*time.Second || d > time.Hour || d%time.Second != 0:
		wrong("lease-duration", "%v, want 0 or whole seconds from 5s to 1h", d)
	case k.LeaseRenew < time.Second:
		wrong("lease-renew-interval", "%v, want at least 1s", k.LeaseRenew)
	case 2*k.LeaseRenew > d: // so that one renewal may fail
		wrong("lease-renew-interval", "%v, want at most half of lease-duration %v", k.LeaseRenew, d)
	}
	if err := config.CheckOverride(k.Override); err != nil {
		wrong("apiserver-override", "%w", err)
	}
	return errors.Join(errs...)
}

// namespace returns the namespace of the agents' Leases and of the controller.
func (k *KubeSettings) namespace() string {
	return cmp.Or(k.Namespace, os.Getenv("POD_NAMESPACE"), metav1.NamespaceSystem)
}

// ResolveNodeName returns the name of the Node object, and the origin of that name. With an error,
// both are empty.
func (k *KubeSettings) ResolveNodeName(from config.Origins) (name, origin string, err error) {
	if k.NodeName != "" {
		return k.NodeName, from[flagNodeName], nil
	}
	origin = "env NODE_NAME"
	if name = os.Getenv("NODE_NAME"); name == "" {
		if name, err = os.Hostname(); err != nil {
			return "", "", fmt.Errorf("name of the node: %w", err)
		}
		// As kubelet does.
		name, origin = strings.ToLower(strings.TrimSpace(name)), "the host's name"
	}
	if why := validation.IsDNS1123Subdomain(name); len(why) > 0 {
		return "", "", fmt.Errorf("name of the node (%s): %q: %s", origin, name, why[0])
	}
	return name, origin, nil
}

// restConfig returns the client configuration for the API server: from the override, from a
// kubeconfig, or in-cluster. The error is config.ErrNoCluster if there is no cluster at all.
func restConfig(k *KubeSettings, version string) (*rest.Config, error) {
	c, err := config.RESTConfig(k.Override, k.Kubeconfig)
	if err != nil {
		return nil, err
	}
	c.QPS, c.Burst = k.QPS, k.Burst
	c.UserAgent = "kernosis/" + version
	c.ContentType, c.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	if file := c.BearerTokenFile; file != "" {
		// The file is read again when its token is refused; client-go itself would
		// use an expired token for up to a minute.
		c.BearerToken, c.BearerTokenFile = "", ""
		c.Wrap(transport.ResettableTokenSourceWrapTransport(transport.NewCachedFileTokenSource(file)))
	}
	return c, nil
}

// cluster holds the clients of the API server that the agent reports to, and the name of its node.
type cluster struct {
	rest *rest.Config
	node string
	api  kubernetes.Interface
	// unlimited has no rate limit. It is for callers that limit their requests themselves.
	unlimited kubernetes.Interface
}

func newCluster(to *rest.Config, node string) (*cluster, error) {
	c := &cluster{rest: to, node: node}
	var err error
	if c.api, err = kubernetes.NewForConfig(to); err != nil {
		return nil, err
	}
	c.unlimited, err = kubernetes.NewForConfig(unlimited(to))
	return c, err
}

func unlimited(c *rest.Config) *rest.Config {
	c = rest.CopyConfig(c)
	c.QPS = -1
	return c
}

// connect sets c.cluster. If no flag names an API server and none is configured, the agent warns
// and runs without a cluster.
func (c *Config) connect(version string) error {
	k := &c.Kube
	if !k.Exporter {
		return nil
	}
	to, err := restConfig(k, version)
	if errors.Is(err, config.ErrNoCluster) && k.Kubeconfig == "" && k.Override == "" {
		c.warnings = append(c.warnings, "nothing is reported to the API server: "+err.Error())
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w (--%s=false runs without the API server)", err, flagKubeExporter)
	}
	node, _, err := k.ResolveNodeName(c.origins)
	if err != nil {
		return err
	}
	c.cluster, err = newCluster(to, node)
	return output.Failed(err)
}
