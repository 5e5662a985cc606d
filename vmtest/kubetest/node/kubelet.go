package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/kubetest/process"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// kubeletPort is the port that kubelet serves on.
const kubeletPort = 10250

// configureKubelet writes kubelet's configuration files.
func (n *Node) configureKubelet(more map[string]any) error {
	cert, key, err := n.server.KubeletCertificate(n.Name, net.ParseIP(address))
	if err != nil {
		return err
	}
	user, err := n.server.User("system:node:"+n.Name, "system:nodes")
	if err != nil {
		return err
	}
	config := map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"address": address, "port": kubeletPort, "healthzPort": 0,
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": false}, "webhook": map[string]any{"enabled": true},
			"x509": map[string]any{"clientCAFile": n.KubeletCA()},
		},
		"authorization": map[string]any{"mode": "Webhook"},
		"tlsCertFile":   n.path("kubelet.crt"), "tlsPrivateKeyFile": n.path("kubelet.key"),
		"clusterDNS": []string{"10.96.0.10"}, "clusterDomain": "cluster.local",
		"containerRuntimeEndpoint": "unix://" + n.socket(),
		"staticPodPath":            n.path("manifests"),
		"cgroupDriver":             "cgroupfs", "cgroupRoot": "/" + n.groups.name,
		// Accept machines with cgroup v1 or swap.
		"failCgroupV1": false, "failSwapOn": false,
		"makeIPTablesUtilChains": false,
		// A full machine does not matter to the tests.
		"evictionHard": map[string]any{
			"memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%", "imagefs.inodesFree": "0%",
		},
		"imageGCHighThresholdPercent": 100,
		"nodeStatusUpdateFrequency":   "4s", "nodeLeaseDurationSeconds": 20, "syncFrequency": "10s", "fileCheckFrequency": "2s",
	}
	maps.Copy(config, more)
	text, err := json.Marshal(config) // JSON is valid YAML
	if err != nil {
		return err
	}
	return errors.Join(
		os.Mkdir(n.path("manifests"), 0o755),
		os.WriteFile(n.path("kubelet.yaml"), text, 0o600),
		os.WriteFile(n.path("kubelet.crt"), cert, 0o600), os.WriteFile(n.path("kubelet.key"), key, 0o600),
		os.WriteFile(n.KubeletCA(), n.server.Admin().CAData, 0o600),
		kubetest.WriteKubeconfig(n.path("kubelet.kubeconfig"), user),
	)
}

// startKubelet starts kubelet and returns when it responds and has reported the node as ready.
func (n *Node) startKubelet(ctx context.Context) (err error) {
	since := time.Now()
	//nolint:noctx // it outlives the call
	cmd := exec.Command(filepath.Join(n.programs, "kubelet"), "--config", n.path("kubelet.yaml"), "--kubeconfig", n.path("kubelet.kubeconfig"),
		"--hostname-override", n.Name, "--node-ip", address)
	if n.kubelet, err = n.run(cmd, "kubelet"); err != nil {
		return err
	}
	err = process.UntilReady(ctx, func(ctx context.Context) error {
		_, err := n.askKubelet(ctx, "/healthz")
		return err
	}, n.kubelet)
	if err != nil {
		return err
	}
	return process.UntilReady(ctx, func(ctx context.Context) error { return n.ready(ctx, since) }, n.kubelet)
}

// ready returns an error unless the node is Ready according to the API server, with a heartbeat not
// before since.
func (n *Node) ready(ctx context.Context, since time.Time) error {
	node, err := n.server.Client().CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, c := range node.Status.Conditions {
		// The timestamp is in whole seconds.
		if c.Type == corev1.NodeReady && !c.LastHeartbeatTime.Time.Before(since.Truncate(time.Second)) {
			if c.Status == corev1.ConditionTrue {
				return nil
			}
			return fmt.Errorf("node is not ready: %s", c.Message)
		}
	}
	return errors.New("kubelet has reported nothing about the node")
}

// KubeletURL returns kubelet's URL for clients in the node's network.
func (n *Node) KubeletURL() string {
	return "https://" + net.JoinHostPort(address, strconv.Itoa(kubeletPort))
}

// KubeletCA returns the path of the PEM certificate that signed kubelet's.
func (n *Node) KubeletCA() string { return n.path("kubelet-ca.crt") }

// Kubelet returns kubelet's response at a path such as /pods or /metrics/probes to a client with
// all rights.
func (n *Node) Kubelet(tb testing.TB, path string) []byte {
	tb.Helper()
	body, err := n.askKubelet(tb.Context(), path)
	if err != nil {
		tb.Fatal(err)
	}
	return body
}

func (n *Node) askKubelet(ctx context.Context, path string) ([]byte, error) {
	return n.get(ctx, n.server.Admin(), n.KubeletURL()+path)
}

// RestartKubelet stops kubelet as an upgrade does and starts it again; pods keep running. It
// returns when the new kubelet has reported the node as ready. It calls meanwhile while kubelet is
// stopped.
func (n *Node) RestartKubelet(tb testing.TB, meanwhile ...func()) {
	tb.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.kubelet.Stop(syscall.SIGTERM, 10*time.Second)
	for _, do := range meanwhile {
		do()
	}
	ctx, cancel := context.WithTimeout(tb.Context(), testenv.Within(startFor))
	defer cancel()
	if err := n.startKubelet(ctx); err != nil {
		tb.Fatal(err)
	}
}
