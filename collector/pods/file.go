package pods

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/collector/probe"
)

// File watches a file of pods.
type File struct {
	*figures
	path  string
	sink  Sink
	inUse []byte // digest of the content in use
}

// NewFile returns a File that has read nothing yet.
func NewFile(path string, sink Sink, log *slog.Logger) *File {
	return &File{figures: newFigures("file", path, log), path: path, sink: sink}
}

// Run reads the file at first and whenever it changes, until ctx ends. It counts and logs
// failures; the known pods stay, even if the file is removed.
func (f *File) Run(ctx context.Context) error {
	// Watch the folder, because files are replaced by others or by links to others.
	document.Watch(ctx, filepath.Dir(f.path), f.log, func() {
		if err := f.look(); err != nil {
			f.failure(err)
		}
	})
	return nil
}

// look reads the file and passes its pods to the sink if it has changed.
func (f *File) look() error {
	at := time.Now()
	data, err := document.ReadFile(f.path, maxFile)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(data)
	if bytes.Equal(sum[:], f.inUse) && f.Failure() == nil {
		return nil
	}
	pods, err := Parse(f.path, data)
	if err != nil {
		return err
	}
	f.inUse = sum[:]
	f.read(len(pods), nil)
	f.sink(pods, at)
	return nil
}

// Bounds of a file of pods.
const (
	maxFile   = 4 << 20
	maxQuoted = 300
)

// ProbesAnnotation of a pod in a file says who makes its probes: "active" means this agent;
// "observe", the default, means kubelet, whose probes the agent only observes. It is ignored for
// pods of the API server: permission to create a pod must not imply permission to make the agent
// run programs.
const ProbesAnnotation = "kernosis.io/probes"

// Parse reads pods from YAML or JSON: v1 Pods, and lists of them, in any number of documents. Its
// errors have file, line and field. Unknown keys are errors.
func Parse(name string, data []byte) ([]*probe.Pod, error) {
	objects, mistakes := document.Parse(document.File{Name: name, Data: data})
	p := &manifest{seen: map[string]int{}, errs: mistakes}
	for _, o := range objects {
		p.pod(o)
		if len(p.pods) > maxPods {
			return nil, fmt.Errorf("%s: more than %d pods", name, maxPods)
		}
	}
	if err := p.errs.Err(); err != nil {
		return nil, err
	}
	return p.pods, nil
}

type manifest struct {
	pods []*probe.Pod
	seen map[string]int // lines of pods, by UID and by name
	errs document.Errors
}

// wrong adds an error at a path of an object, or at the nearest existing key.
func (p *manifest) wrong(o *document.Object, path, format string, args ...any) {
	e := o.At(o.FindKey(path), "", format, args...)
	e.Msg = display.Safe(e.Msg, 1000)
	p.errs = append(p.errs, e)
}

// pod parses one object.
func (p *manifest) pod(o *document.Object) {
	switch version, kind := o.Text("apiVersion"), o.Text("kind"); {
	case version == "v1" && kind == "Pod":
	case version == "v1" && (kind == "PodList" || kind == "List"):
		p.wrong(o, "items", "items: want a list of pods")
		return
	default:
		p.wrong(o, "kind", "want a v1 Pod or PodList, have apiVersion %q, kind %q", display.Safe(version, maxQuoted), display.Safe(kind, maxQuoted))
		return
	}
	data, err := json.Marshal(document.Value(o.Root))
	if err != nil {
		p.wrong(o, "", "%v", err)
		return
	}
	var pod corev1.Pod
	strict, err := kjson.UnmarshalStrict(data, &pod)
	if err != nil {
		p.wrong(o, "", "%s", strings.TrimPrefix(err.Error(), "json: "))
		return
	}
	for _, err := range strict {
		path := ""
		if fe := kjson.FieldError(nil); errors.As(err, &fe) {
			path = fe.FieldPath()
		}
		p.wrong(o, path, "%v", err)
	}
	if len(strict) == 0 {
		p.add(o, &pod)
	}
}

// add checks and adds a pod.
func (p *manifest) add(o *document.Object, from *corev1.Pod) {
	said := from.Annotations[ProbesAnnotation]
	if said != "active" && said != "observe" && said != "" {
		p.wrong(o, "metadata.annotations", "%s: %q: want active or observe", ProbesAnnotation, display.Safe(said, maxQuoted))
		return
	}
	if from.Namespace == "" {
		from.Namespace = "default"
	}
	if from.UID == "" {
		from.UID = hash(from)
	}
	pod, err := Convert(from)
	for _, err := range flatten(err) {
		path := ""
		if pe := (*FieldError)(nil); errors.As(err, &pe) {
			path = pe.Path
		}
		p.wrong(o, path, "%v", err)
	}
	if pod == nil {
		return
	}
	pod.Active = said == "active"
	p.reachable(o, pod)
	assumeRunning(pod, from)
	for _, key := range []string{"uid " + pod.UID, pod.Namespace + "/" + pod.Name} {
		if line, twice := p.seen[key]; twice {
			p.wrong(o, "", "duplicate pod %s/%s, first on line %d", pod.Namespace, pod.Name, line)
			return
		}
	}
	p.seen["uid "+pod.UID], p.seen[pod.Namespace+"/"+pod.Name] = o.Root.Line, o.Root.Line
	p.pods = append(p.pods, pod)
}

// reachable reports an error for probes that have no address.
func (p *manifest) reachable(o *document.Object, pod *probe.Pod) {
	if len(pod.Addresses) > 0 || pod.Terminated {
		return
	}
	for i := range pod.Containers {
		c := &pod.Containers[i]
		for _, k := range probe.Kinds() {
			if s := c.Probe(k); s != nil && s.Handler != probe.Exec && s.Host == "" {
				p.wrong(o, "status", "pod %s/%s: container %s: %s probe has no address: set status.podIP",
					pod.Namespace, pod.Name, c.Name, k)
			}
		}
	}
}

// assumeRunning marks all containers of a pod as running if its status lists none: nobody writes
// container IDs into a file.
func assumeRunning(pod *probe.Pod, from *corev1.Pod) {
	if pod.Terminated || len(from.Status.ContainerStatuses) > 0 || len(from.Status.InitContainerStatuses) > 0 {
		return
	}
	for i := range pod.Containers {
		c := &pod.Containers[i]
		c.State, c.ID = probe.Running, probe.NoRuntime+"://"+pod.UID+"/"+c.Name
	}
}

// hash returns the UID for a pod without one. As for kubelet's static pods, a changed manifest is
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
