package podsource

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/probe"
	"github.com/kernosis/kernosis/collector/probe/podspec"
)

// Bounds of kubelet's answer, which has 5 to 20 KiB for each pod.
const (
	maxAnswer = 64 << 20
	maxPods   = 1100 // ten times kubelet's default limit
)

// listed is the part of a pod that is used. The rest, which is most of it, is skipped:
// environment, volumes, managed fields.
type listed struct {
	Metadata struct {
		Name              string            `json:"name"`
		Namespace         string            `json:"namespace"`
		UID               types.UID         `json:"uid"`
		DeletionTimestamp *metav1.Time      `json:"deletionTimestamp"`
		Labels            map[string]string `json:"labels"`
		CreationTimestamp metav1.Time       `json:"creationTimestamp"`
		Annotations       struct {
			Mirror string `json:"kubernetes.io/config.mirror"`
			Source string `json:"kubernetes.io/config.source"` // where kubelet got the pod from
		} `json:"annotations"`
		OwnerReferences []metav1.OwnerReference `json:"ownerReferences"`
	} `json:"metadata"`
	Spec struct {
		HostNetwork    bool                 `json:"hostNetwork"`
		RestartPolicy  corev1.RestartPolicy `json:"restartPolicy"`
		Containers     []listedContainer    `json:"containers"`
		InitContainers []listedContainer    `json:"initContainers"`
		Resources      *listedResources     `json:"resources"`
	} `json:"spec"`
	Status struct {
		Phase      corev1.PodPhase       `json:"phase"`
		Conditions []corev1.PodCondition `json:"conditions"`
		PodIP      string                `json:"podIP"`
		PodIPs     []corev1.PodIP        `json:"podIPs"`
		HostIP     string                `json:"hostIP"`
		HostIPs    []corev1.HostIP       `json:"hostIPs"`
		Containers []listedStatus        `json:"containerStatuses"`
		Init       []listedStatus        `json:"initContainerStatuses"`
	} `json:"status"`
}

type listedContainer struct {
	Name               string                         `json:"name"`
	Ports              []corev1.ContainerPort         `json:"ports"`
	Resources          listedResources                `json:"resources"`
	RestartPolicy      *corev1.ContainerRestartPolicy `json:"restartPolicy"`
	RestartPolicyRules []corev1.ContainerRestartRule  `json:"restartPolicyRules"`
	LivenessProbe      *corev1.Probe                  `json:"livenessProbe"`
	ReadinessProbe     *corev1.Probe                  `json:"readinessProbe"`
	StartupProbe       *corev1.Probe                  `json:"startupProbe"`
}

type listedStatus struct {
	Name         string                `json:"name"`
	State        corev1.ContainerState `json:"state"`
	Ready        bool                  `json:"ready"`
	RestartCount int32                 `json:"restartCount"`
	ContainerID  string                `json:"containerID"`
	Started      *bool                 `json:"started"`
	Resources    *listedResources      `json:"resources"`
}

type listedResources struct {
	Limits corev1.ResourceList `json:"limits"`
}

func (r *listedResources) requirements() *corev1.ResourceRequirements {
	if r == nil {
		return nil
	}
	return &corev1.ResourceRequirements{Limits: r.Limits}
}

func (l *listed) pod() *corev1.Pod {
	p := &corev1.Pod{}
	p.Name, p.Namespace, p.UID = l.Metadata.Name, l.Metadata.Namespace, l.Metadata.UID
	p.DeletionTimestamp, p.Labels, p.CreationTimestamp = l.Metadata.DeletionTimestamp, l.Metadata.Labels, l.Metadata.CreationTimestamp
	if l.Metadata.Annotations.Mirror != "" {
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: l.Metadata.Annotations.Mirror}
		p.OwnerReferences = l.Metadata.OwnerReferences
	}
	p.Spec.HostNetwork, p.Spec.RestartPolicy = l.Spec.HostNetwork, l.Spec.RestartPolicy
	p.Spec.Resources = l.Spec.Resources.requirements()
	p.Spec.Containers, p.Spec.InitContainers = containers(l.Spec.Containers), containers(l.Spec.InitContainers)
	s := &l.Status
	p.Status = corev1.PodStatus{
		Phase: s.Phase, Conditions: s.Conditions, PodIP: s.PodIP, PodIPs: s.PodIPs, HostIP: s.HostIP, HostIPs: s.HostIPs,
		ContainerStatuses: statuses(s.Containers), InitContainerStatuses: statuses(s.Init),
	}
	return p
}

func containers(list []listedContainer) []corev1.Container {
	out := make([]corev1.Container, len(list))
	for i, c := range list {
		out[i] = corev1.Container{
			Name: c.Name, Ports: c.Ports, Resources: corev1.ResourceRequirements{Limits: c.Resources.Limits},
			RestartPolicy: c.RestartPolicy, RestartPolicyRules: c.RestartPolicyRules,
			LivenessProbe: c.LivenessProbe, ReadinessProbe: c.ReadinessProbe, StartupProbe: c.StartupProbe,
		}
	}
	return out
}

func statuses(list []listedStatus) []corev1.ContainerStatus {
	out := make([]corev1.ContainerStatus, len(list))
	for i, s := range list {
		out[i] = corev1.ContainerStatus{
			Name: s.Name, State: s.State, Ready: s.Ready, RestartCount: s.RestartCount, ContainerID: s.ContainerID, Started: s.Started,
			Resources: s.Resources.requirements(),
		}
	}
	return out
}

// decode reads a PodList of at most limit bytes, one pod at a time. faults has what can't be
// used, by pod. served reports whether any pod is the API server's.
func decode(r io.Reader, limit int64) (pods []*probe.Pod, faults map[string]string, served bool, err error) {
	faults = map[string]string{}
	seen := map[string]place{}
	err = eachPod(r, limit, func(dec *json.Decoder, i int) error {
		var l listed
		if err := dec.Decode(&l); err != nil {
			return err
		}
		source := l.Metadata.Annotations.Source
		served = served || source == "" || source == "api"
		object := l.pod()
		pod, err := podspec.Pod(object)
		if err != nil {
			faults[faultKey(&l, i)] = err.Error()
		}
		if pod == nil {
			return nil
		}
		before, again := seen[pod.UID]
		switch {
		case !again:
			seen[pod.UID] = place{len(pods), &object.ObjectMeta}
			pods = append(pods, pod)
		case podspec.Precedes(&object.ObjectMeta, before.of, pod.UID):
			seen[pod.UID] = place{before.at, &object.ObjectMeta}
			pods[before.at] = pod
		}
		return nil
	})
	if err != nil {
		return nil, nil, false, err
	}
	return pods, faults, served, nil
}

// eachPod reads a PodList of at most limit bytes. It calls each for every pod, to decode the pod
// with index i.
func eachPod(r io.Reader, limit int64, each func(dec *json.Decoder, i int) error) error {
	limited := &io.LimitedReader{R: r, N: limit + 1}
	err := readList(json.NewDecoder(limited), each)
	if limited.N <= 0 {
		return fmt.Errorf("more than %d bytes", limit)
	}
	return err
}

func readList(dec *json.Decoder, each func(dec *json.Decoder, i int) error) error {
	if err := expect(dec, json.Delim('{')); err != nil {
		return err
	}
	kind, items := "", false
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return err
		}
		switch key {
		case "kind":
			err = dec.Decode(&kind)
		case "items":
			items = true
			err = readItems(dec, each)
		default:
			err = dec.Decode(&skipped{})
		}
		if err != nil {
			return fmt.Errorf("%v: %w", key, err)
		}
	}
	if err := expect(dec, json.Delim('}')); err != nil {
		return err
	}
	if kind != "PodList" || !items {
		return fmt.Errorf("the answer is not a PodList (kind %q)", display.Safe(kind, 50))
	}
	return nil
}

// skipped ignores a JSON value.
type skipped struct{}

func (skipped) UnmarshalJSON([]byte) error { return nil }

func expect(dec *json.Decoder, want json.Delim) error {
	t, err := dec.Token()
	switch {
	case errors.Is(err, io.EOF):
		return io.ErrUnexpectedEOF
	case err != nil:
		return err
	case t != want:
		return fmt.Errorf("want %s, have %v", want, t)
	}
	return nil
}

func readItems(dec *json.Decoder, each func(dec *json.Decoder, i int) error) error {
	t, err := dec.Token()
	if err != nil {
		return err
	}
	if t == nil {
		return nil // null: no items
	}
	if t != json.Delim('[') {
		return fmt.Errorf("want a list, have %v", t)
	}
	for i := 0; dec.More(); i++ {
		if i == maxPods {
			return fmt.Errorf("more than %d pods", maxPods)
		}
		if err := each(dec, i); err != nil {
			return fmt.Errorf("[%d]: %w", i, err)
		}
	}
	return expect(dec, json.Delim(']'))
}

// place is the position of a pod in the list.
type place struct {
	at int
	of *metav1.ObjectMeta
}

// faultKey returns the key of a pod in faults, even for a pod without a name.
func faultKey(l *listed, i int) string {
	key := l.Metadata.Namespace + "/" + l.Metadata.Name + "/" + string(l.Metadata.UID)
	if len(key) > 600 || !utf8.ValidString(key) {
		return strconv.Itoa(i)
	}
	return key
}
