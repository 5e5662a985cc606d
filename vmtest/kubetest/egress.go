package kubetest

import (
	"errors"
	"fmt"
	"os"
)

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

// egressFlags returns the flags with which the API server connects to kubelets, for example for
// logs of pods.
func (s *Server) egressFlags() []string {
	return []string{
		"--egress-selector-config-file=" + s.path("egress.yaml"),
		"--kubelet-certificate-authority=" + s.path("ca.crt"), "--kubelet-preferred-address-types=InternalIP",
		"--kubelet-client-certificate=" + s.path("kubelet-client.crt"), "--kubelet-client-key=" + s.path("kubelet-client.key"),
	}
}

// writeEgress writes the files that these flags name.
func (s *Server) writeEgress() error {
	cert, key, err := s.ca.client("kube-apiserver-kubelet-client", []string{"system:masters"})
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(s.path("egress.yaml"), fmt.Appendf(nil, egressConfig, s.Egress()), 0o600),
		os.WriteFile(s.path("kubelet-client.crt"), cert, 0o600),
		os.WriteFile(s.path("kubelet-client.key"), key, 0o600),
	)
}
