package kubetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/vmtest/kubetest/process"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// startControllers starts kube-controller-manager and kube-scheduler and returns when pods can be
// created: a namespace then has its service account and the ConfigMap with the API server's CA.
// Both programs survive outages of the API server.
func (s *Server) startControllers(ctx context.Context, programs string) error {
	// The user is in the group with all rights: the RBAC of Kubernetes' own components is not
	// under test, and creating an account for each controller takes 5 s.
	user, err := s.User("kubetest-controllers", "system:masters")
	if err != nil {
		return err
	}
	kubeconfig := s.path("controllers.kubeconfig")
	if err := WriteKubeconfig(kubeconfig, user); err != nil {
		return err
	}
	for _, p := range []struct {
		name string
		args []string
	}{
		{"kube-controller-manager", []string{
			"--service-account-private-key-file=" + s.path("sa.key"), "--root-ca-file=" + s.path("ca.crt"),
			// The client's own rate limit must not delay reactions to changes.
			"--kube-api-qps=200", "--kube-api-burst=400",
		}},
		{"kube-scheduler", nil},
	} {
		// They serve no port, as nothing queries them.
		args := append([]string{"--kubeconfig=" + kubeconfig, "--leader-elect=false", "--secure-port=0"}, p.args...)
		//nolint:noctx // it outlives the call, and is ended by Close
		c, err := process.Start(exec.Command(filepath.Join(programs, p.name), args...), p.name, s.path(p.name+".log"))
		if err != nil {
			return err
		}
		s.controllers = append(s.controllers, c)
	}
	within := testenv.Within(startFor)
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("no service account after %s", within))
	defer cancel()
	core := s.client.CoreV1()
	return process.UntilReady(ctx, func(ctx context.Context) error {
		_, err := core.ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		if err == nil {
			_, err = core.ConfigMaps(metav1.NamespaceDefault).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		}
		return err
	}, s.controllers...)
}

// egressConfig makes the API server connect to nodes and pods through a proxy on a socket.
const egressConfig = `apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: cluster
  connection:
    proxyProtocol: HTTPConnect
    transport: {uds: {udsName: %q}}
`

// Egress returns the path of the socket where the API server expects an HTTP proxy to nodes and
// pods, which are in networks of their own. It is empty without [Options.Controllers]. Nodes and
// pods can't be reached until a proxy listens there.
func (s *Server) Egress() string {
	if !s.whole {
		return ""
	}
	return s.path("egress.sock")
}

// setEgress makes the API server connect to kubelets, for example for logs of pods.
func (s *Server) setEgress() error {
	cert, key, err := s.ca.client("kube-apiserver-kubelet-client", []string{"system:masters"})
	if err != nil {
		return err
	}
	s.flags = append([]string{
		"--egress-selector-config-file=" + s.path("egress.yaml"),
		"--kubelet-certificate-authority=" + s.path("ca.crt"), "--kubelet-preferred-address-types=InternalIP",
		"--kubelet-client-certificate=" + s.path("kubelet-client.crt"), "--kubelet-client-key=" + s.path("kubelet-client.key"),
	}, s.flags...)
	return errors.Join(
		os.WriteFile(s.path("egress.yaml"), fmt.Appendf(nil, egressConfig, s.Egress()), 0o600),
		os.WriteFile(s.path("kubelet-client.crt"), cert, 0o600),
		os.WriteFile(s.path("kubelet-client.key"), key, 0o600),
	)
}
