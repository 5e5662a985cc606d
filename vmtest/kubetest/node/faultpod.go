package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"

	"github.com/kernosis/kernosis/vmtest/kubetest/node/fault"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// FaultPod returns a pod for a probe failure of the given mode: its container "main" is probed
// every second, with a timeout of a second, and fails after three failures in a row. It is healthy
// until SetMode sets the mode. With grpc it is probed by gRPC instead of HTTP.
func FaultPod(namespace, name string, mode fault.Mode, grpc bool) *corev1.Pod {
	main := corev1.Container{Name: "main", Image: fault.Image}
	// The delay covers the start, so that no probe fails too early.
	delay := func(idle time.Duration) int32 { return int32(testenv.Within(idle) / time.Second) }
	probe := &corev1.Probe{InitialDelaySeconds: delay(3 * time.Second), PeriodSeconds: 1, TimeoutSeconds: 1, FailureThreshold: 3, ProbeHandler: handler(mode, grpc)}
	switch mode {
	case fault.Throttled:
		main.Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}
		// The start takes longer with this limit.
		probe.InitialDelaySeconds = delay(5 * time.Second)
	case fault.ChildKilled:
		main.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("48Mi")}
	}
	main.LivenessProbe = probe
	grace := int64(3) // it exits after one
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": name}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{main}, TerminationGracePeriodSeconds: &grace},
	}
}

func handler(mode fault.Mode, grpc bool) corev1.ProbeHandler {
	switch {
	case mode == fault.ExecFails || mode == fault.ExecHangs:
		return corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: fault.ProbeCommand()}}
	case mode == fault.TLSGarbage:
		return corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(fault.PortTLS), Scheme: corev1.URISchemeHTTPS}}
	case grpc:
		return corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: fault.PortGRPC}}
	}
	return corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(fault.Port)}}
}

// SetMode sets the mode of a pod of [FaultPod] and returns when it is in effect.
func (n *Node) SetMode(ctx context.Context, pod *corev1.Pod, mode fault.Mode) error {
	_, err := n.control(ctx, pod, "mode?to="+string(mode))
	return err
}

// File makes a pod of [FaultPod] read or write a page of a file, bypassing all caches, and returns
// the name of the error, such as EIO or EROFS, or ok.
func (n *Node) File(ctx context.Context, pod *corev1.Pod, path string, page int, write bool) (string, error) {
	do := "read"
	if write {
		do = "write"
	}
	text, err := n.control(ctx, pod, fmt.Sprintf("file?path=%s&page=%d&do=%s", url.QueryEscape(path), page, do))
	return strings.TrimSpace(string(text)), err
}

// control sends a request to a pod of [FaultPod]. It retries for some seconds, because a container
// that has just started may not listen yet.
func (n *Node) control(ctx context.Context, pod *corev1.Pod, what string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, testenv.Within(20*time.Second))
	defer cancel()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		text, err := n.Get(ctx, fmt.Sprintf("http://%s:%d/%s", pod.Status.PodIP, fault.PortControl, what), "")
		if err == nil {
			return text, nil
		}
		if !errors.Is(err, unix.ECONNREFUSED) || ctx.Err() != nil {
			return nil, fmt.Errorf("pod %s: %s: %w", pod.Name, what, err)
		}
		<-again.C
	}
}

// Get sends an HTTP request from within the node, for example to a pod. It accepts any certificate,
// and sends the token unless it is empty.
func (n *Node) Get(ctx context.Context, url, token string) ([]byte, error) {
	return n.get(ctx, &rest.Config{BearerToken: token, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, url)
}

// get sends a request with the credentials of as.
func (n *Node) get(ctx context.Context, as *rest.Config, at string) ([]byte, error) {
	as.Dial, as.Timeout = n.space.dial, testenv.Within(20*time.Second)
	as.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil } // not the machine's proxy
	client, err := rest.HTTPClientFor(as)
	if err != nil {
		return nil, err
	}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, http.NoBody)
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %.200s", at, answer.Status, body)
	}
	return body, err
}
