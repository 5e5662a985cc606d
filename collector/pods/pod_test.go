package pods_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kernosis/kernosis/collector/pods"
	"github.com/kernosis/kernosis/collector/probe"
)

func podOf(t *testing.T, manifest string) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(manifest), p); err != nil {
		t.Fatal(err)
	}
	return p
}

const whole = `
metadata: {name: web-0, namespace: shop, uid: 0aa1, deletionTimestamp: "2026-01-02T03:04:05Z"}
spec:
  restartPolicy: Never
  initContainers:
  - name: migrate
    livenessProbe: {tcpSocket: {port: 1}}
  - name: proxy
    restartPolicy: Always
    ports: [{name: admin, containerPort: 15020}]
    startupProbe: {httpGet: {path: "healthz/ready?full=1", port: admin, host: proxy.internal, scheme: HTTPS}}
  containers:
  - name: web
    resources: {limits: {cpu: 1500m}}
    ports: [{name: http, containerPort: 8080}]
    livenessProbe:
      httpGet: {port: http, httpHeaders: [{name: Host, value: shop.example}, {name: X, value: "1"}]}
      initialDelaySeconds: 5
      timeoutSeconds: 2
      periodSeconds: 3
      failureThreshold: 4
    readinessProbe: {grpc: {port: 9090, service: shop.v1}, successThreshold: 2}
    startupProbe: {exec: {command: [cat, /tmp/started]}}
  - name: plain
status:
  phase: Running
  podIP: 10.0.0.7
  podIPs: [{ip: 10.0.0.7}, {ip: "fd00::7"}]
  containerStatuses:
  - name: web
    containerID: containerd://8a1f
    restartCount: 2
    ready: true
    started: true
    state: {running: {startedAt: "2026-01-02T03:00:00Z"}}
    resources: {limits: {cpu: "2"}}
  - name: plain
    containerID: containerd://9b2e
    state: {terminated: {exitCode: 1}}
  initContainerStatuses:
  - name: proxy
    containerID: containerd://7c3d
    state: {waiting: {reason: CrashLoopBackOff}}
`

func TestPod(t *testing.T) {
	have, err := pods.Convert(podOf(t, whole))
	if err != nil {
		t.Fatal(err)
	}
	spec := func(s probe.Spec) *probe.Spec {
		if s.Timeout == 0 {
			s.Timeout, s.Period, s.FailureThreshold = time.Second, 10*time.Second, 3
		}
		if s.SuccessThreshold == 0 {
			s.SuccessThreshold = 1
		}
		return &s
	}
	want := &probe.Pod{
		UID: "0aa1", Namespace: "shop", Name: "web-0", Deleting: true, RestartNever: true,
		Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.7"), netip.MustParseAddr("fd00::7")},
		Containers: []probe.Container{
			{
				Name: "web", ID: "containerd://8a1f", State: probe.Running, StartedAt: time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC),
				Started: true, Ready: true, CPULimit: 2000,
				Liveness: spec(probe.Spec{
					Handler: probe.HTTP, Port: 8080, Path: "/", Headers: http.Header{"Host": {"shop.example"}, "X": {"1"}},
					InitialDelay: 5 * time.Second, Timeout: 2 * time.Second, Period: 3 * time.Second, FailureThreshold: 4,
				}),
				Readiness: spec(probe.Spec{Handler: probe.GRPC, Port: 9090, Service: "shop.v1", SuccessThreshold: 2}),
				Startup:   spec(probe.Spec{Handler: probe.Exec, Command: []string{"cat", "/tmp/started"}}),
			},
			{Name: "plain", ID: "containerd://9b2e", State: probe.Ended, Final: true},
			{
				Name: "proxy", ID: "containerd://7c3d", State: probe.Waiting, Sidecar: true,
				Startup: spec(probe.Spec{Handler: probe.HTTPS, Host: "proxy.internal", Port: 15020, Path: "/healthz/ready?full=1"}),
			},
		},
	}
	if diff := cmp.Diff(want, have, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(time.Time.Equal)); diff != "" {
		t.Error(diff)
	}
}

func TestIdentityAndAddresses(t *testing.T) {
	base := func() *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n", UID: "u"}}
	}
	addr := netip.MustParseAddr
	for name, tc := range map[string]struct {
		change    func(*corev1.Pod)
		uid       string
		addresses []netip.Addr
		ended     bool
	}{
		"no address yet": {func(*corev1.Pod) {}, "u", nil, false},
		"mirror of a static pod": {func(p *corev1.Pod) {
			p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "b1946ac92492d2347c6235b4d2611184"}
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n7"}}
		}, "b1946ac92492d2347c6235b4d2611184", nil, false},
		"claims to be a mirror with the UID of another pod": {func(p *corev1.Pod) {
			p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "6a1f2c7e-8b1a-4d60-9c55-0d4c8f2b7a11"}
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n7"}}
		}, "u", nil, false},
		"old status": {func(p *corev1.Pod) { p.Status.PodIP = "10.0.0.1" }, "u", []netip.Addr{addr("10.0.0.1")}, false},
		"IPv6 first": {func(p *corev1.Pod) {
			p.Status.PodIP, p.Status.PodIPs = "fd00::1", []corev1.PodIP{{IP: "fd00::1"}, {IP: "10.0.0.1"}}
		}, "u", []netip.Addr{addr("fd00::1"), addr("10.0.0.1")}, false},
		"IPv4 written as IPv6": {func(p *corev1.Pod) { p.Status.PodIP = "::ffff:10.0.0.1" }, "u", []netip.Addr{addr("10.0.0.1")}, false},
		"host network": {func(p *corev1.Pod) {
			p.Spec.HostNetwork, p.Status.HostIP, p.Status.HostIPs = true, "192.0.2.1", []corev1.HostIP{{IP: "192.0.2.1"}, {IP: "fd01::1"}}
		}, "u", []netip.Addr{addr("192.0.2.1"), addr("fd01::1")}, false},
		"no host network": {func(p *corev1.Pod) { p.Status.HostIP = "192.0.2.1" }, "u", nil, false},
		"failed":          {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, "u", nil, true},
		"succeeded":       {func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, "u", nil, true},
	} {
		p := base()
		tc.change(p)
		have, err := pods.Convert(p)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if have.UID != tc.uid || fmt.Sprint(have.Addresses) != fmt.Sprint(tc.addresses) || have.Terminated != tc.ended {
			t.Errorf("%s: %+v", name, have)
		}
	}
}

// The path is the one that kubelet's client requests.
func TestPath(t *testing.T) {
	for in, want := range map[string]string{
		"": "/", "/": "/", "healthz": "/healthz", "/a b": "/a%20b", "/a?b=c d": "/a?b=c d", "/a#f": "/a",
		"http://elsewhere:1/x?y": "/x?y", "//elsewhere/x": "/x", "?q=1": "/?q=1", "/%zz": "/%25zz", "/a%2Fb": "/a%2Fb",
	} {
		p := podOf(t, whole)
		p.Spec.Containers[0].LivenessProbe.HTTPGet.Path = in
		have, err := pods.Convert(p)
		if err != nil {
			t.Errorf("%q: %v", in, err)
			continue
		}
		if got := have.Containers[0].Liveness.Path; got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestWhatIsWrongIsNamed(t *testing.T) {
	liveness := func(change func(*corev1.Probe)) func(*corev1.Pod) {
		return func(p *corev1.Pod) { change(p.Spec.Containers[0].LivenessProbe) }
	}
	long := strings.Repeat("x", 20_000)
	for want, change := range map[string]func(*corev1.Pod){
		`pod shop/web-0: metadata.uid: missing @metadata.uid`:            func(p *corev1.Pod) { p.UID = "" },
		`pod shop/web-0: metadata.uid: "a\n" is not a UID @metadata.uid`: func(p *corev1.Pod) { p.UID = "a\n" },
		`pod shop/web-0: container web: liveness probe: httpGet.port: the container has no port named "htpp" @spec.containers[0].livenessProbe.httpGet.port`:      liveness(func(p *corev1.Probe) { p.HTTPGet.Port.StrVal = "htpp" }),
		`pod shop/web-0: container web: liveness probe: httpGet.scheme: "ftp": want HTTP or HTTPS @spec.containers[0].livenessProbe.httpGet.scheme`:               liveness(func(p *corev1.Probe) { p.HTTPGet.Scheme = "ftp" }),
		`pod shop/web-0: container web: liveness probe: httpGet.port: 70000 is not a port @spec.containers[0].livenessProbe.httpGet.port`:                         liveness(func(p *corev1.Probe) { p.HTTPGet.Port.StrVal = "70000" }),
		`pod shop/web-0: container web: liveness probe: periodSeconds: -1 is less than 0 @spec.containers[0].livenessProbe.periodSeconds`:                         liveness(func(p *corev1.Probe) { p.PeriodSeconds = -1 }),
		`pod shop/web-0: container web: liveness probe: no httpGet, tcpSocket, grpc or exec @spec.containers[0].livenessProbe`:                                    liveness(func(p *corev1.Probe) { p.HTTPGet = nil }),
		`pod shop/web-0: container web: liveness probe: more than one of httpGet, tcpSocket, grpc and exec @spec.containers[0].livenessProbe`:                     liveness(func(p *corev1.Probe) { p.GRPC = &corev1.GRPCAction{Port: 1} }),
		`pod shop/web-0: container web: liveness probe: 20019 bytes of text, at most 16384 are kept @spec.containers[0].livenessProbe`:                            liveness(func(p *corev1.Probe) { p.HTTPGet.Host = long }),
		`pod shop/web-0: container web: startup probe: exec.command: missing @spec.containers[0].startupProbe.exec.command`:                                       func(p *corev1.Pod) { p.Spec.Containers[0].StartupProbe.Exec.Command = nil },
		`pod shop/web-0: container web: readiness probe: grpc.port: 0 is not a port @spec.containers[0].readinessProbe.grpc.port`:                                 func(p *corev1.Pod) { p.Spec.Containers[0].ReadinessProbe.GRPC.Port = 0 },
		`pod shop/web-0: container proxy: startup probe: httpGet.port: the container has no port named "admin" @spec.initContainers[1].startupProbe.httpGet.port`: func(p *corev1.Pod) { p.Spec.InitContainers[1].Ports = nil },
		`pod shop/web-0: container plain: name: another container has this name @spec.containers[2].name`:                                                         func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, p.Spec.Containers[1]) },
		`pod shop/web-0: status.podIPs: "10.0.0.256" is not an IP address @status.podIPs`:                                                                         func(p *corev1.Pod) { p.Status.PodIPs[0].IP = "10.0.0.256" },
		`pod shop/web-0: spec.containers: 101 containers, at most 100 are supported @spec.containers`:                                                             func(p *corev1.Pod) { p.Spec.Containers, p.Spec.InitContainers = make([]corev1.Container, 101), nil },
	} {
		p := podOf(t, whole)
		change(p)
		have, err := pods.Convert(p)
		var pe *pods.FieldError
		if !errors.As(err, &pe) {
			t.Errorf("%s: %v", want, err)
			continue
		}
		if got := pe.Error() + " @" + pe.Path; got != want {
			t.Errorf("have %s\nwant %s", got, want)
		}
		// The rest is still returned.
		if strings.Contains(want, "liveness probe") && (have == nil || have.Containers[0].Liveness != nil || have.Containers[0].Readiness == nil) {
			t.Errorf("%s: %+v", want, have)
		}
	}
}

// Whether kubelet restarts a container that has ended.
func TestFinal(t *testing.T) {
	always, onFailure, never := corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyOnFailure, corev1.ContainerRestartPolicyNever
	rule := func(action corev1.ContainerRestartRuleAction, op corev1.ContainerRestartRuleOnExitCodesOperator, codes ...int32) []corev1.ContainerRestartRule {
		return []corev1.ContainerRestartRule{{Action: action, ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: op, Values: codes}}}
	}
	const restart, all = corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleActionRestartAllContainers
	const in, notIn = corev1.ContainerRestartRuleOnExitCodesOpIn, corev1.ContainerRestartRuleOnExitCodesOpNotIn
	for i, tc := range []struct {
		pod   corev1.RestartPolicy
		own   *corev1.ContainerRestartPolicy
		rules []corev1.ContainerRestartRule
		code  int32
		final bool
	}{
		{pod: corev1.RestartPolicyAlways},
		{pod: "", code: 1},
		{pod: corev1.RestartPolicyOnFailure, code: 1},
		{pod: corev1.RestartPolicyOnFailure, code: 0, final: true},
		{pod: corev1.RestartPolicyNever, code: 1, final: true},
		{pod: corev1.RestartPolicyNever, own: &always, code: 0},
		{pod: corev1.RestartPolicyNever, own: &onFailure, code: 1},
		{pod: corev1.RestartPolicyAlways, own: &onFailure, code: 0, final: true},
		{pod: corev1.RestartPolicyAlways, own: &never, code: 1, final: true},
		{pod: corev1.RestartPolicyNever, own: &never, rules: rule(restart, in, 42), code: 42},
		{pod: corev1.RestartPolicyNever, own: &never, rules: rule(restart, in, 42), code: 1, final: true},
		{pod: corev1.RestartPolicyNever, own: &never, rules: rule(restart, notIn, 42), code: 1},
		{pod: corev1.RestartPolicyNever, own: &never, rules: rule(all, in, 42), code: 42},
	} {
		p := podOf(t, whole)
		p.Spec.RestartPolicy = tc.pod
		c := &p.Spec.Containers[1]
		c.RestartPolicy, c.RestartPolicyRules = tc.own, tc.rules
		p.Status.ContainerStatuses[1].State.Terminated.ExitCode = tc.code
		have, err := pods.Convert(p)
		if err != nil {
			t.Fatal(err)
		}
		if ended := have.Containers[1]; ended.Final != tc.final || tc.final != (ended.Final || have.RestartNever) {
			t.Errorf("%d: final %v, pod never %v", i, ended.Final, have.RestartNever)
		}
	}
	// If the end of one container restarts all, no end is final.
	p := podOf(t, whole)
	p.Spec.InitContainers[0].RestartPolicy = &never
	p.Spec.InitContainers[0].RestartPolicyRules = rule(all, in, 7)
	p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, corev1.ContainerStatus{
		Name: "migrate", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 7}},
	})
	if have, err := pods.Convert(p); err != nil || have.Containers[1].Final || have.RestartNever {
		t.Errorf("%+v, %v", have, err)
	}
	p = podOf(t, whole)
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.AllContainersRestarting, Status: corev1.ConditionTrue}}
	if have, err := pods.Convert(p); err != nil || have.Containers[1].Final || have.RestartNever {
		t.Errorf("%+v, %v", have, err)
	}
}

// A container without its own limit is limited by its pod's.
func TestCPULimit(t *testing.T) {
	for name, tc := range map[string]struct {
		pod, container string
		want           int64
	}{
		"none":       {"", "", 0},
		"its own":    {"", "resources: {limits: {cpu: 200m}}", 200},
		"its pod's":  {"resources: {limits: {cpu: 500m}}", "", 500},
		"both":       {"resources: {limits: {cpu: 500m}}", "resources: {limits: {cpu: 200m}}", 200},
		"memory":     {"resources: {limits: {memory: 1Gi}}", "resources: {limits: {memory: 1Gi}}", 0},
		"no request": {"resources: {requests: {cpu: 500m}}", "", 0},
	} {
		have, err := pods.Convert(podOf(t, "metadata: {name: p, namespace: n, uid: u}\nspec:\n  "+tc.pod+"\n  containers:\n  - name: main\n    livenessProbe: {tcpSocket: {port: 1}}\n    "+tc.container+"\n"))
		if err != nil || len(have.Containers) != 1 || have.Containers[0].CPULimit != tc.want {
			t.Errorf("%s: %+v, %v; want a limit of %d", name, have, err, tc.want)
		}
	}
}
