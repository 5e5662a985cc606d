package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kernosis/kernosis/cmd/kernosis/agent"
	"github.com/kernosis/kernosis/cmd/kernosis/config"
	"github.com/kernosis/kernosis/collector/bounded"
	"github.com/kernosis/kernosis/diagnose/why"
)

// kubeFlagSet has kubectl's flags that select the API server and the user. Unlike a daemon, a
// person's command also uses $KUBECONFIG and ~/.kube/config.
type kubeFlagSet struct {
	path string
	over clientcmd.ConfigOverrides
}

func newKubeFlagSet(fs *pflag.FlagSet) *kubeFlagSet {
	k := &kubeFlagSet{}
	fs.StringVar(&k.path, clientcmd.RecommendedConfigPathFlag, "", "kubeconfig `file`; empty: $KUBECONFIG, ~/.kube/config, or the service account of the pod")
	clientcmd.BindOverrideFlags(&k.over, fs, clientcmd.RecommendedConfigOverrideFlags(""))
	for name, usage := range map[string]string{
		"as": "`user` to impersonate", "as-group": "`group` to impersonate (repeatable)", "as-uid": "`UID` to impersonate",
		"certificate-authority": "`file` with the certificate authority of the API server", "client-certificate": "`file` with a client certificate", "client-key": "`file` with its key",
		"cluster": "`name` of the cluster in the kubeconfig", "context": "`name` of the context in the kubeconfig", "user": "`name` of the user in the kubeconfig",
		"namespace": "`namespace` of the request", "server": "`URL` of the API server", "proxy-url": "`URL` of a proxy", "tls-server-name": "`name` that the API server's certificate must have",
		"token": "bearer `token` for the API server", "username": "`name` for basic authentication", "password": "`password` for basic authentication",
		"request-timeout":          "`duration` after which a request times out, such as 30s; 0: never",
		"insecure-skip-tls-verify": "skip verification of the API server's certificate", "disable-compression": "request uncompressed responses from the API server",
	} {
		if f := fs.Lookup(name); f != nil {
			f.Usage = usage
		}
	}
	return k
}

// asked reports whether the command line selects an API server.
func (k *kubeFlagSet) asked() bool {
	return k.path != "" || k.over.CurrentContext != "" || k.over.ClusterInfo.Server != "" || k.over.Context.Cluster != ""
}

func (k *kubeFlagSet) config() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = k.path
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &k.over)
}

// namespace returns the namespace of -n or of the kubeconfig, or "default".
func (k *kubeFlagSet) namespace() string {
	ns, _, err := k.config().Namespace()
	if err != nil {
		return metav1.NamespaceDefault
	}
	return ns
}

// rest returns the client configuration for the API server. The error is config.ErrNoCluster if none
// is configured.
func (k *kubeFlagSet) rest() (*rest.Config, error) {
	c, err := k.config().ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err), errors.Is(err, rest.ErrNotInCluster):
		return nil, config.ErrNoCluster
	case err != nil:
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	c.UserAgent = "kernosis-why/" + version
	return c, nil
}

// server returns the client configuration of the API server to ask, and fills in the subject's
// namespace or node. The error is config.ErrNoCluster if no API server is to be asked. reads bounds
// reads of the state folder.
func (f *whyFlags) server(reads *bounded.Calls, s *why.Subject) (*rest.Config, error) {
	if f.journal != "" && !f.kube.asked() {
		return nil, config.ErrNoCluster
	}
	if s.Kind == why.KindPod && s.Namespace == "" && looksLikeUID(s.Name) {
		return nil, config.ErrNoCluster // the API server can't look up a pod by UID
	}
	c, err := f.kube.rest()
	if err != nil {
		return nil, err
	}
	if s.Kind == why.KindPod {
		s.Namespace = cmp.Or(s.Namespace, f.kube.namespace())
	}
	if s.Kind == why.KindNode && s.Name == "" {
		if s.Name = nodeOfState(reads, agent.StateWithin, f.stateDir); s.Name == "" {
			return nil, errors.New("can't determine the name of this node; give NAME")
		}
	}
	return c, nil
}

// completeFor is how long a shell waits for names.
const completeFor = 2 * time.Second

// complete returns a client for shell completion, or nil.
func (f *whyFlags) complete() kubernetes.Interface {
	c, err := f.kube.rest()
	if err != nil {
		return nil
	}
	c.Timeout = completeFor
	client, err := kubernetes.NewForConfig(c)
	if err != nil {
		return nil
	}
	return client
}

func (f *whyFlags) completePod(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	client, ctx := f.complete(), cmd.Context()
	if len(args) > 0 || client == nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	namespace, _, named := strings.Cut(typed, "/")
	prefix := namespace + "/"
	if !named {
		namespace, prefix = f.kube.namespace(), ""
	}
	var out []string
	if list, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{Limit: 500}); err == nil {
		for i := range list.Items {
			out = append(out, prefix+list.Items[i].Name)
		}
	}
	if named {
		return out, cobra.ShellCompDirectiveNoFileComp
	}
	if list, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{Limit: 500}); err == nil {
		for i := range list.Items {
			out = append(out, list.Items[i].Name+"/")
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

func (f *whyFlags) completeNode(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	client := f.complete()
	if len(args) > 0 || client == nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	if list, err := client.CoreV1().Nodes().List(cmd.Context(), metav1.ListOptions{Limit: 500}); err == nil {
		for i := range list.Items {
			out = append(out, list.Items[i].Name)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
