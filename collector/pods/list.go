package pods

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/probe"
)

// Bounds of kubelet's answer, which has 5 to 20 KiB for each pod.
const (
	maxAnswer = 64 << 20
	maxPods   = 1100 // ten times kubelet's default limit
)

// polled is a pod as it is polled. A field that hides one of an embedded type is not decoded: these
// are most of an answer, and decoding them would double the time.
type polled struct {
	corev1.Pod
	Spec struct {
		corev1.PodSpec
		Containers     []polledContainer `json:"containers"`
		InitContainers []polledContainer `json:"initContainers"`
		Affinity       skipped           `json:"affinity"`
		Tolerations    skipped           `json:"tolerations"`
		Volumes        skipped           `json:"volumes"`
	} `json:"spec"`
}

type polledContainer struct {
	corev1.Container
	Env          skipped `json:"env"`
	EnvFrom      skipped `json:"envFrom"`
	VolumeMounts skipped `json:"volumeMounts"`
}

// pod returns the pod without what is hidden.
func (l *polled) pod() *corev1.Pod {
	containers := func(list []polledContainer) (out []corev1.Container) {
		for i := range list {
			out = append(out, list[i].Container)
		}
		return out
	}
	l.Pod.Spec = l.Spec.PodSpec
	l.Pod.Spec.Containers, l.Pod.Spec.InitContainers = containers(l.Spec.Containers), containers(l.Spec.InitContainers)
	return &l.Pod
}

// decode reads a PodList of at most limit bytes, one pod at a time. faults has what can't be
// used, by pod. served reports whether any pod is the API server's.
func decode(r io.Reader, limit int64) (pods []*probe.Pod, faults map[string]string, served bool, err error) {
	type place struct {
		at int               // in pods
		of metav1.ObjectMeta // only what [Precedes] needs, so that the pod can be freed
	}
	faults = map[string]string{}
	seen := map[string]place{}
	err = eachPod(r, limit, func(i int, l *polled) {
		p, m := l.pod(), &l.ObjectMeta
		source := m.Annotations[sourceKey]
		served = served || source == "" || source == "api"
		pod, err := Convert(p)
		if err != nil {
			faults[faultKey(m, i)] = err.Error()
		}
		if pod == nil {
			return
		}
		claim := metav1.ObjectMeta{UID: m.UID, CreationTimestamp: m.CreationTimestamp}
		before, again := seen[pod.UID]
		switch {
		case !again:
			seen[pod.UID] = place{len(pods), claim}
			pods = append(pods, pod)
		case Precedes(m, &before.of, pod.UID):
			seen[pod.UID] = place{before.at, claim}
			pods[before.at] = pod
		}
	})
	if err != nil {
		return nil, nil, false, err
	}
	return pods, faults, served, nil
}

// faultKey returns the key of a pod in faults, even for a pod without a name.
func faultKey(m *metav1.ObjectMeta, i int) string {
	key := m.Namespace + "/" + m.Name + "/" + string(m.UID)
	if len(key) > 600 || !utf8.ValidString(key) {
		return strconv.Itoa(i)
	}
	return key
}

// eachPod reads a PodList of at most limit bytes, and calls each for every pod with its index.
func eachPod[T any](r io.Reader, limit int64, each func(i int, p *T)) error {
	limited := &io.LimitedReader{R: r, N: limit + 1}
	err := readList(json.NewDecoder(limited), each)
	if limited.N <= 0 {
		return fmt.Errorf("more than %d bytes", limit)
	}
	return err
}

func readList[T any](dec *json.Decoder, each func(i int, p *T)) error {
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

func readItems[T any](dec *json.Decoder, each func(i int, p *T)) error {
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
		p := new(T)
		if err := dec.Decode(p); err != nil {
			return fmt.Errorf("[%d]: %w", i, err)
		}
		each(i, p)
	}
	return expect(dec, json.Delim(']'))
}

// ErrNoPod is returned for a pod that kubelet does not have: it is gone, or on another node.
// While kubelet starts, it has pods of the API server only after some seconds.
var ErrNoPod = errors.New("kubelet has no such pod on this node") //nolint:gochecknoglobals // a constant

// Pod requests a complete pod from kubelet, or returns [ErrNoPod]. A static pod has the UID from
// kubelet, not that of its mirror pod in the API. If two pods have the name, it prefers a pod of the API
// server to a static pod, and then the newest, because kubelet lists a pod for a moment after its end.
func (a *Asker) Pod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	var found *corev1.Pod
	err := a.each(ctx, func(p *corev1.Pod) {
		if p.Namespace == namespace && p.Name == name && (found == nil || succeeds(p, found)) {
			found = p
		}
	})
	if err != nil {
		return nil, err
	}
	if found == nil {
		return nil, fmt.Errorf("pod %s/%s: %w", namespace, name, ErrNoPod)
	}
	return found, nil
}

// succeeds reports whether p is preferred to another pod of the same name.
func succeeds(p, other *corev1.Pod) bool {
	if static := IsStatic(&p.ObjectMeta); static != IsStatic(&other.ObjectMeta) {
		return !static
	}
	return other.CreationTimestamp.Before(&p.CreationTimestamp)
}

// All requests all pods from kubelet, on each call: they are needed seldom, and too big to keep.
func (a *Asker) All(ctx context.Context) (all []corev1.Pod, err error) {
	err = a.each(ctx, func(p *corev1.Pod) { all = append(all, *p) })
	return all, err
}

func (a *Asker) each(ctx context.Context, do func(*corev1.Pod)) error {
	resp, err := a.Get(ctx, podsPage)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := eachPod(resp.Body, maxAnswer, func(_ int, p *corev1.Pod) { do(p) }); err != nil {
		return fmt.Errorf("kubelet's pods: %w", err)
	}
	return nil
}
