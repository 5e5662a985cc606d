package podsource

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/probe"
	"github.com/kernosis/kernosis/collector/probe/podspec"
)

// Bounds of a file of pods.
const (
	maxFile   = 4 << 20
	maxDepth  = 64 // mappings and lists in each other
	maxErrors = 100
	maxQuoted = 300
)

// ProbesAnnotation says of a pod in a file who makes its probes: "active", this agent,
// or "observe", kubelet, which is only looked at. Pods of the API are not asked: whoever
// may make a pod must not make the agent run things.
const ProbesAnnotation = "kernosis.io/probes"

// Parse reads pods from YAML or JSON: v1 Pods, and lists of them, in any number of
// documents. Its errors name file, line and field; keys that a Pod does not have are
// errors. Active is whether the agent makes the probes of pods that do not say it.
func Parse(name string, data []byte, active bool) (pods []*probe.Pod, err error) {
	// A file must not be able to end the program, also not by a fault of the YAML reader.
	defer func() {
		if r := recover(); r != nil {
			pods, err = nil, fmt.Errorf("%s: yaml: %s", name, event.SafeText(fmt.Sprint(r), maxQuoted))
		}
	}()
	p := &manifest{name: name, active: active, seen: map[string]int{}}
	loader, err := yaml.NewLoader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	for {
		var root yaml.Node
		err := loader.Load(&root)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			p.yamlError(err)
			break
		}
		if len(root.Content) > 0 {
			p.document(root.Content[0])
		}
		if len(p.pods) > maxPods {
			return nil, fmt.Errorf("%s: more than %d pods", name, maxPods)
		}
	}
	if p.more > 0 {
		p.errs = append(p.errs, fmt.Errorf("and %d more", p.more))
	}
	if len(p.errs) > 0 {
		return nil, errors.Join(p.errs...)
	}
	return p.pods, nil
}

type manifest struct {
	name   string
	active bool
	pods   []*probe.Pod
	seen   map[string]int // lines of pods, by UID and by name
	errs   []error
	more   int // errors that are not kept
}

func (p *manifest) wrong(line int, format string, args ...any) {
	if len(p.errs) >= maxErrors {
		p.more++
		return
	}
	text := event.SafeText(fmt.Sprintf(format, args...), 1000)
	p.errs = append(p.errs, fmt.Errorf("%s:%d: %s", p.name, line, text))
}

func (p *manifest) yamlError(err error) {
	if le := (*yaml.LoadError)(nil); errors.As(err, &le) {
		p.wrong(le.Mark.Line, "yaml: %s", le.Message)
		return
	}
	p.errs = append(p.errs, fmt.Errorf("%s: %s", p.name, event.SafeText(err.Error(), 1000)))
}

// document takes one document, or an item of a list.
func (p *manifest) document(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		return
	}
	if at, why := plain(n, 0); why != "" {
		p.wrong(at, "%s", why)
		return
	}
	if n.Kind != yaml.MappingNode {
		p.wrong(n.Line, "want a Pod")
		return
	}
	version, kind := text(n, "apiVersion"), text(n, "kind")
	switch {
	case version == "v1" && kind == "Pod":
		p.pod(n)
	case version == "v1" && (kind == "PodList" || kind == "List"):
		items := child(n, "items")
		for i := 0; i+1 < len(n.Content); i += 2 {
			switch key := n.Content[i]; key.Value {
			case "apiVersion", "kind", "metadata", "items":
			default:
				p.wrong(key.Line, "unknown field %q", event.SafeText(key.Value, maxQuoted))
			}
		}
		if items == nil || items.Kind != yaml.SequenceNode {
			p.wrong(n.Line, "items: want a list of pods")
			return
		}
		for _, item := range items.Content {
			p.document(item)
		}
	default:
		p.wrong(n.Line, "want a v1 Pod or PodList, have apiVersion %q, kind %q", event.SafeText(version, maxQuoted), event.SafeText(kind, maxQuoted))
	}
}

func (p *manifest) pod(n *yaml.Node) {
	var values map[string]any
	if err := n.Load(&values); err != nil {
		p.yamlError(err)
		return
	}
	data, err := json.Marshal(values)
	if err != nil {
		p.wrong(n.Line, "%v", err)
		return
	}
	var pod corev1.Pod
	strict, err := kjson.UnmarshalStrict(data, &pod)
	if err != nil {
		p.wrong(n.Line, "%s", strings.TrimPrefix(err.Error(), "json: "))
		return
	}
	for _, err := range strict {
		line := n.Line
		if fe := kjson.FieldError(nil); errors.As(err, &fe) {
			line = locate(n, fe.FieldPath())
		}
		p.wrong(line, "%v", err)
	}
	if len(strict) > 0 {
		return
	}
	p.add(n, &pod)
}

// add checks and keeps a pod.
func (p *manifest) add(n *yaml.Node, from *corev1.Pod) {
	active := p.active
	switch said := from.Annotations[ProbesAnnotation]; said {
	case "active":
		active = true
	case "observe":
		active = false
	case "":
	default:
		p.wrong(locate(n, "metadata.annotations"), "%s: %q is neither active nor observe", ProbesAnnotation, event.SafeText(said, maxQuoted))
		return
	}
	if from.Namespace == "" {
		from.Namespace = "default"
	}
	if from.UID == "" {
		from.UID = hash(from)
	}
	pod, err := podspec.Pod(from)
	for _, err := range flatten(err) {
		line := n.Line
		if pe := (*podspec.Error)(nil); errors.As(err, &pe) {
			line = locate(n, pe.Path)
		}
		p.wrong(line, "%v", err)
	}
	if pod == nil {
		return
	}
	pod.Active = active
	p.reachable(n, pod)
	assumeRunning(pod, from)
	for _, key := range []string{"uid " + pod.UID, pod.Namespace + "/" + pod.Name} {
		if line, twice := p.seen[key]; twice {
			p.wrong(n.Line, "pod %s/%s is there already, on line %d", pod.Namespace, pod.Name, line)
			return
		}
	}
	p.seen["uid "+pod.UID], p.seen[pod.Namespace+"/"+pod.Name] = n.Line, n.Line
	p.pods = append(p.pods, pod)
}

// reachable tells of probes that have nowhere to go.
func (p *manifest) reachable(n *yaml.Node, pod *probe.Pod) {
	if len(pod.Addresses) > 0 || pod.Terminated {
		return
	}
	for i := range pod.Containers {
		c := &pod.Containers[i]
		for _, k := range probe.Kinds() {
			if s := c.Probe(k); s != nil && s.Handler != probe.Exec && s.Host == "" {
				p.wrong(locate(n, "status"), "pod %s/%s: container %s: %s probe has no address: write the pod's to status.podIP",
					pod.Namespace, pod.Name, c.Name, k)
			}
		}
	}
}

// assumeRunning takes the containers for running of a pod whose status says nothing of
// them: nobody writes the IDs of containers into a file.
func assumeRunning(pod *probe.Pod, from *corev1.Pod) {
	if pod.Terminated || len(from.Status.ContainerStatuses) > 0 || len(from.Status.InitContainerStatuses) > 0 {
		return
	}
	for i := range pod.Containers {
		c := &pod.Containers[i]
		c.State, c.ID = probe.Running, probe.NoRuntime+"://"+pod.UID+"/"+c.Name
	}
}

// hash is the UID of a pod that has none: as with kubelet's static pods, another text is
// another pod.
func hash(p *corev1.Pod) types.UID {
	same := corev1.Pod{ObjectMeta: p.ObjectMeta, Spec: p.Spec}
	// Encoding what was decoded can't fail.
	data, _ := json.Marshal(&same) //nolint:errcheck // see above
	sum := sha256.Sum256(data)
	return types.UID(hex.EncodeToString(sum[:16]))
}

func flatten(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error }) //nolint:errorlint // the very one
	if !ok {
		return []error{err}
	}
	var all []error
	for _, e := range joined.Unwrap() {
		all = append(all, flatten(e)...)
	}
	return all
}
