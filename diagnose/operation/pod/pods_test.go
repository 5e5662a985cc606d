package pod

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/vmtest/operationtest"
)

// knownPods are the pods of a node without an API server. Package collector/pods is tested with
// one.
type knownPods []corev1.Pod

func (p knownPods) All(context.Context) ([]corev1.Pod, error) {
	return append([]corev1.Pod(nil), p...), nil
}

func (p knownPods) Pod(_ context.Context, namespace, name string) (*corev1.Pod, error) {
	for i := range p {
		if p[i].Namespace == namespace && p[i].Name == name {
			return &p[i], nil
		}
	}
	return nil, errors.New("not found")
}

const (
	webUID    = "0f6d5b2e-7c1a-4e0b-9a53-2f1c8e4d7b60"
	secretUID = "11111111-7c1a-4e0b-9a53-2f1c8e4d7b60"
)

// webPod returns a pod with all fields set.
func webPod() corev1.Pod {
	at := metav1.NewTime(time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC))
	priority, controls, started := int32(7), true, false
	p := corev1.Pod{}
	p.Namespace, p.Name, p.UID, p.CreationTimestamp = "shop", "web-0", types.UID(webUID), at
	p.Labels = map[string]string{"app": "web", "tier": "front"}
	p.OwnerReferences = []metav1.OwnerReference{{Kind: "Node", Name: "x"}, {Kind: "ReplicaSet", Name: "web-5d", Controller: &controls}}
	p.Spec = corev1.PodSpec{
		NodeName: "n7", Priority: &priority, HostPID: true,
		InitContainers: []corev1.Container{{Name: "init", Image: "init:1"}},
		Containers: []corev1.Container{{
			Name: "main", Image: "web:2",
			Resources: corev1.ResourceRequirements{
				Limits:   corev1.ResourceList{"memory": resource.MustParse("128Mi"), "cpu": resource.MustParse("500m")},
				Requests: corev1.ResourceList{"cpu": resource.MustParse("100m")},
			},
			Env: []corev1.EnvVar{
				{Name: "TOKEN", Value: "hunter2"},
				{Name: "PASSWORD", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "hunter2"}}},
			},
			EnvFrom: []corev1.EnvFromSource{{}},
			Command: []string{"sh", "-c", "hunter2"},
			LivenessProbe: &corev1.Probe{
				ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
					Port: intstr.FromInt32(8080), Path: "/healthz", HTTPHeaders: []corev1.HTTPHeader{{Name: "Authorization", Value: "hunter2"}},
				}},
				TimeoutSeconds: 1, PeriodSeconds: 10, SuccessThreshold: 1, FailureThreshold: 3,
			},
			ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"hunter2"}}}},
		}},
		Volumes: []corev1.Volume{
			{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
			{Name: "tmp", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
		},
	}
	p.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBurstable, PodIPs: []corev1.PodIP{{IP: "10.1.2.3"}, {IP: "fd00::3"}},
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "ContainersNotReady"},
		},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: "main", RestartCount: 4, ContainerID: "containerd://" + strings.Repeat("a", 64), ImageID: "web@sha256:1", Started: &started,
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 40s"}},
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				Reason: "OOMKilled", ExitCode: 137, StartedAt: at, FinishedAt: at, ContainerID: "containerd://" + strings.Repeat("b", 64),
			}},
		}},
		InitContainerStatuses: []corev1.ContainerStatus{{
			Name: "init", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", FinishedAt: at}},
		}},
	}
	return p
}

// secretPod returns a pod in another namespace on the same node.
func secretPod() corev1.Pod {
	p := corev1.Pod{}
	p.Namespace, p.Name, p.UID = "bank", "vault-0", types.UID(secretUID)
	p.Spec.Containers = []corev1.Container{{Name: "vault"}}
	p.Status.Phase = corev1.PodPending
	return p
}

func wantResults(t *testing.T, out operation.Output, want map[string]string) {
	t.Helper()
	for name, value := range want {
		if got := out.Results[name]; got != value {
			t.Errorf("%s is %q, want %q", name, got, value)
		}
	}
	if strings.Contains(strings.Join(sortedValues(out), " "), "hunter2") {
		t.Errorf("a secret is reported: %v", out.Results)
	}
}

func sortedValues(out operation.Output) (values []string) {
	for _, v := range out.Results {
		values = append(values, v)
	}
	return values
}

func TestPodDetail(t *testing.T) {
	h := operation.Host{Pods: knownPods{secretPod(), webPod()}}
	for _, p := range []map[string]string{{"podUID": webUID}, {"podNamespace": "shop", "podName": "web-0"}, {"podNamespace": "shop", "podName": "web-0", "podUID": webUID}} {
		out, _ := operationtest.Succeed(t, PodDetail(h), p)
		wantResults(t, out, map[string]string{
			"podNamespace": "shop", "podName": "web-0", "podUID": webUID, "node": "n7", "phase": "Running", "reason": "",
			"conditions": "PodScheduled; Ready=False ContainersNotReady", "ready": "false", "owner": "ReplicaSet web-5d", "qos": "Burstable", "priority": "7",
			"hostNetwork": "false", "hostPID": "true", "restarts": "4", "addresses": "10.1.2.3 fd00::3", "claims": "shop/data shop/web-0-tmp",
			"containers": "main waiting CrashLoopBackOff restarts=4; init terminated Completed (exit code 0) restarts=0",
			"labels":     "app=web tier=front", "created": "2026-02-03T04:05:06Z", "deleted": "",
		})
	}
}

// Anybody who knows the hash of a static pod can claim it: the oldest claimant is the mirror pod.
func TestPodDetailOfAClaimedUID(t *testing.T) {
	const hash = "b1946ac92492d2347c6235b4d2611184"
	mirror := func(name string, age time.Duration) corev1.Pod {
		p := corev1.Pod{}
		p.Namespace, p.Name, p.UID = "shop", name, types.UID(name)
		p.CreationTimestamp = metav1.NewTime(time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC).Add(-age))
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: hash}
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n7"}}
		return p
	}
	h := operation.Host{Pods: knownPods{mirror("forged", time.Minute), mirror("kubelets", time.Hour)}}
	out, _ := operationtest.Succeed(t, PodDetail(h), map[string]string{"podUID": hash})
	wantResults(t, out, map[string]string{"podName": "kubelets"})
}

func TestContainerDetail(t *testing.T) {
	h := operation.Host{Pods: knownPods{webPod()}}
	for _, p := range []map[string]string{{}, {"container": "main"}, {"containerID": strings.Repeat("a", 64)}, {"containerID": strings.Repeat("b", 64)}} {
		p["podUID"] = webUID
		out, _ := operationtest.Succeed(t, ContainerDetail(h), p)
		wantResults(t, out, map[string]string{
			"podName": "web-0", "container": "main", "containerID": strings.Repeat("a", 64), "image": "web:2", "imageID": "web@sha256:1",
			"state": "waiting CrashLoopBackOff", "stateMessage": "back-off 40s", "ready": "false", "started": "false", "restarts": "4",
			"lastReason": "OOMKilled", "lastExitCode": "137", "oomKilled": "true", "lastFinished": "2026-02-03T04:05:06Z",
			"limits": "cpu=500m memory=128Mi", "requests": "cpu=100m", "memoryLimitBytes": "134217728",
			"livenessProbe":  "http-get :8080/healthz delay=0s timeout=1s period=10s successes=1 failures=3",
			"readinessProbe": "exec delay=0s timeout=0s period=0s successes=0 failures=0", "startupProbe": "",
			"envNames": "TOKEN PASSWORD", "note": "variables of 1 more ConfigMap or Secret are not listed",
		})
	}
	out, _ := operationtest.Succeed(t, ContainerDetail(h), map[string]string{"podUID": webUID, "container": "init"})
	wantResults(t, out, map[string]string{"image": "init:1", "state": "terminated Completed (exit code 0)", "lastReason": "Completed", "oomKilled": "false", "limits": "", "memoryLimitBytes": ""})
	for name, p := range map[string]map[string]string{"no container \"x\"": {"container": "x"}, "no container with the id": {"containerID": "x"}} {
		p["podUID"] = webUID
		if _, _, err := operationtest.Perform(t, ContainerDetail(h), p); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPodList(t *testing.T) {
	static := corev1.Pod{}
	static.Namespace, static.Name, static.UID = "kube-system", "etcd-n7", "m"
	static.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "0123456789abcdef0123456789abcdef"}
	static.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n7"}}
	static.Status.Phase = corev1.PodSucceeded
	b := PodList(operation.Host{Pods: knownPods{static, webPod(), secretPod()}})
	out, files := operationtest.Succeed(t, b, nil)
	wantResults(t, out, map[string]string{
		"pods": "3", "podNames": "bank/vault-0 shop/web-0 kube-system/etcd-n7", "claims": "shop/data shop/web-0-tmp",
		"phases": "Pending=1 Running=1 Succeeded=1", "notReady": "2", "note": "",
	})
	if text := files.Files["pods.txt"]; strings.Count(text, "\n") != 4 || !strings.Contains(text, "ReplicaSet web-5d") {
		t.Errorf("%s", text)
	}
	out, _ = operationtest.Succeed(t, b, map[string]string{"affectedPodUIDs": webUID + " 01234567-89ab-cdef-0123-456789abcdef none", "affectedPods": "4"})
	wantResults(t, out, map[string]string{
		"pods": "2", "podNames": "shop/web-0 kube-system/etcd-n7", "note": "this node has no pod with the UID none; of 4 UIDs only 3 are given",
	})
	out, _ = operationtest.Succeed(t, b, map[string]string{"affectedPods": "0"})
	wantResults(t, out, map[string]string{"pods": "0", "podNames": ""})
}

// Without an API server each operation reports what is missing. A pod that was recreated is not
// found.
func TestPodsThatAreNotKnown(t *testing.T) {
	for _, b := range []operation.Builtin{PodDetail(operation.Host{}), ContainerDetail(operation.Host{}), PodList(operation.Host{})} {
		if _, _, err := operationtest.Perform(t, b, map[string]string{"podUID": webUID}); err == nil || !strings.Contains(err.Error(), "neither the API server nor kubelet is queried") {
			t.Errorf("%s: %v", b.Name, err)
		}
	}
	b := PodDetail(operation.Host{Pods: knownPods{webPod(), secretPod()}})
	for want, p := range map[string]map[string]string{
		"is required":              {"podName": "web-0"},
		"is gone: the pod of that": {"podNamespace": "shop", "podName": "web-0", "podUID": secretUID},
		"no pod with the UID":      {"podUID": "x"},
		"not found":                {"podNamespace": "shop", "podName": "web-1"},
	} {
		if out, _, err := operationtest.Perform(t, b, p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v %v", want, out.Results, err)
		}
	}
}

// A tenant's run gets the namespace, name and UID of its pod: none of them leads to another pod.
func TestATenantsPodIsItsOwn(t *testing.T) {
	h := operation.Host{Pods: knownPods{webPod(), secretPod()}}
	for _, b := range []operation.Builtin{PodDetail(h), ContainerDetail(h)} {
		for name, p := range map[string]map[string]string{
			"UID":  {"podNamespace": "shop", "podName": "web-0", "podUID": secretUID},
			"name": {"podNamespace": "bank", "podName": "vault-0", "podUID": webUID},
		} {
			if out, _, err := operationtest.Perform(t, b, p); err == nil || len(out.Results) > 0 {
				t.Errorf("%s, %s: %v", b.Name, name, out.Results)
			}
		}
		// A container id from elsewhere doesn't, either.
		out, _, _ := operationtest.Perform(t, b, map[string]string{"podNamespace": "shop", "podName": "web-0", "podUID": webUID, "container": "vault", "containerID": "c"})
		if b.Name == "container-detail" && len(out.Results) > 0 || b.Name == "pod-detail" && out.Results["podName"] != "web-0" {
			t.Errorf("%s: %v", b.Name, out.Results)
		}
	}
}
