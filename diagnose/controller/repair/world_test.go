package repair

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// store has objects like the API server, as far as the controller depends on it: an update or patch
// with a stale resourceVersion is rejected, one that changes nothing creates no version, and a
// status is written separately. A real API server with two managers takes some ten seconds for what
// takes milliseconds here.
type store struct {
	objects map[string]client.Object
	version int
	seen    func(by string, old, now client.Object) // called for each write
}

func keyOf(o client.Object, key client.ObjectKey) string {
	return reflect.TypeOf(o).Elem().Name() + " " + key.String()
}

func resource(o client.Object) schema.GroupResource {
	return schema.GroupResource{Resource: reflect.TypeOf(o).Elem().Name()}
}

func (s *store) get(key client.ObjectKey, into client.Object) error {
	have, ok := s.objects[keyOf(into, key)]
	if !ok {
		return apierrors.NewNotFound(resource(into), key.Name)
	}
	assign(into, have)
	return nil
}

// assign copies an object into another of its type.
func assign(into, from client.Object) {
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(from.DeepCopyObject()).Elem())
}

func (s *store) create(o client.Object) {
	s.version++
	o.SetResourceVersion(strconv.Itoa(s.version))
	o.SetUID(types.UID(fmt.Sprintf("uid-%d", s.version)))
	o.SetGeneration(1)
	o.SetCreationTimestamp(metav1.Now())
	s.objects[keyOf(o, client.ObjectKeyFromObject(o))] = sent(o)
}

// sent returns an object as it arrives at the server: times are truncated to seconds.
func sent(o client.Object) client.Object {
	text, err := json.Marshal(o)
	now := reflect.New(reflect.TypeOf(o).Elem()).Interface().(client.Object)
	if err = errors.Join(err, json.Unmarshal(text, now)); err != nil {
		panic(err)
	}
	return now
}

// put writes an object, or with status only its status.
func (s *store) put(by string, o client.Object, status bool) error {
	key := keyOf(o, client.ObjectKeyFromObject(o))
	have, ok := s.objects[key]
	switch {
	case !ok:
		return apierrors.NewNotFound(resource(o), o.GetName())
	case o.GetResourceVersion() != have.GetResourceVersion():
		return apierrors.NewConflict(resource(o), o.GetName(), errors.New("it was changed meanwhile"))
	}
	now := sent(o)
	if status {
		now = have.DeepCopyObject().(client.Object)
		field(now, "Status").Set(field(sent(o), "Status"))
	} else if !equality.Semantic.DeepEqual(field(now, "Spec").Interface(), field(have, "Spec").Interface()) {
		now.SetGeneration(have.GetGeneration() + 1)
	}
	if !equality.Semantic.DeepEqual(have, now) {
		s.version++
		now.SetResourceVersion(strconv.Itoa(s.version))
		s.objects[key] = now
		if s.seen != nil {
			s.seen(by, have, now)
		}
	}
	assign(o, now)
	return nil
}

func field(o client.Object, name string) reflect.Value {
	return reflect.ValueOf(o).Elem().FieldByName(name)
}

// patch applies a merge patch.
func (s *store) patch(by string, key client.ObjectKey, o client.Object, body []byte, status bool) error {
	if err := s.get(key, o); err != nil {
		return err
	}
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	var have, change map[string]any
	if err := errors.Join(json.Unmarshal(text, &have), json.Unmarshal(body, &change)); err != nil {
		return err
	}
	if text, err = json.Marshal(merge(have, change)); err != nil {
		return err
	}
	now := reflect.New(reflect.TypeOf(o).Elem()).Interface().(client.Object)
	if err := json.Unmarshal(text, now); err != nil {
		return err
	}
	if err := s.put(by, now, status); err != nil {
		return err
	}
	assign(o, now)
	return nil
}

func merge(have, change map[string]any) map[string]any {
	if have == nil {
		have = map[string]any{}
	}
	for k, v := range change {
		switch v := v.(type) {
		case nil:
			delete(have, k)
		case map[string]any:
			inner, _ := have[k].(map[string]any)
			have[k] = merge(inner, v)
		default:
			have[k] = v
		}
	}
	return have
}

// list fills in the objects that the options select.
func list(objects map[string]client.Object, into client.ObjectList, opts []client.ListOption) error {
	o := client.ListOptions{}
	o.ApplyOptions(opts)
	kind := reflect.TypeOf(into).Elem().Name()
	var items []runtime.Object
	var keys []string
	for key := range objects {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		have := objects[key]
		if reflect.TypeOf(have).Elem().Name()+"List" != kind || o.Namespace != "" && have.GetNamespace() != o.Namespace {
			continue
		}
		if d, ok := have.(*v1alpha1.Diagnosis); ok && o.FieldSelector != nil {
			for _, r := range o.FieldSelector.Requirements() { // by node, in cache or at the server
				ok = ok && r.Value == d.Spec.NodeName
			}
			if !ok {
				continue
			}
		}
		if n, ok := have.(*corev1.Node); ok && o.FieldSelector != nil && !n.Spec.Unschedulable {
			continue // the one selector of nodes
		}
		items = append(items, have.DeepCopyObject())
	}
	return meta.SetList(into, items)
}

// callFault is the fault injected into an API call.
type callFault int

const (
	fine     callFault = iota
	unsent             // it fails and was not executed
	lost               // it was executed, but its response is lost
	killed             // the process dies before it
	survived           // the process dies after it
)

// process is a controller's process: its cache, and whether it is alive.
type process struct {
	name  string
	store *store
	cache map[string]client.Object
	dead  bool
}

// hand is one of a process' goroutines. Before each API call it waits for its turn.
type hand struct {
	process *process
	waits   chan struct{}
	turn    chan callFault
}

type handKey struct{}

// call makes an API call when it is its turn.
func (p *process) call(ctx context.Context, do func() error) error {
	if p.name == "" {
		return do() // persons and agents
	}
	w := ctx.Value(handKey{}).(*hand)
	w.waits <- struct{}{}
	f := <-w.turn
	if ctx.Err() != nil { // its timeout was over before its turn
		return ctx.Err()
	}
	if p.dead {
		return errDead
	}
	var err error
	switch f {
	case unsent:
		return errors.New("connection refused")
	case killed:
		p.dead = true
		return errDead
	case lost:
		_ = do()
		return errors.New("connection reset by peer")
	case survived:
		_ = do()
		p.dead = true
		return errDead
	default:
		err = do()
	}
	return err
}

// memory is a client of a store.
type memory struct {
	client.WithWatch
	*process
	cached bool // it reads the process' cache
}

func (m *memory) Get(ctx context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if m.cached {
		have, ok := m.cache[keyOf(into, key)]
		if !ok {
			return apierrors.NewNotFound(resource(into), key.Name)
		}
		assign(into, have)
		return nil
	}
	return m.call(ctx, func() error { return m.store.get(key, into) })
}

func (m *memory) List(ctx context.Context, into client.ObjectList, opts ...client.ListOption) error {
	if m.cached {
		return list(m.cache, into, opts)
	}
	return m.call(ctx, func() error { return list(m.store.objects, into, opts) })
}

func (m *memory) Patch(ctx context.Context, o client.Object, p client.Patch, _ ...client.PatchOption) error {
	body, err := p.Data(o)
	if err != nil {
		return err
	}
	return m.call(ctx, func() error { return m.store.patch(m.name, client.ObjectKeyFromObject(o), o, body, false) })
}

func (m *memory) Status() client.SubResourceWriter { return &memoryStatus{m: m} }

type memoryStatus struct {
	client.SubResourceWriter
	m *memory
}

func (s *memoryStatus) Update(ctx context.Context, o client.Object, _ ...client.SubResourceUpdateOption) error {
	return s.m.call(ctx, func() error { return s.m.store.put(s.m.name, o, true) })
}

func (s *memoryStatus) Patch(ctx context.Context, o client.Object, p client.Patch, _ ...client.SubResourcePatchOption) error {
	body, err := p.Data(o)
	if err != nil {
		return err
	}
	return s.m.call(ctx, func() error { return s.m.store.patch(s.m.name, client.ObjectKeyFromObject(o), o, body, true) })
}

// memoryAPI provides the same store's nodes to [Actions].
type memoryAPI struct {
	kubernetes.Interface
	p *process
}

type memoryCore struct {
	corev1client.CoreV1Interface
	p *process
}

type memoryNodes struct {
	corev1client.NodeInterface
	p *process
}

func (a *memoryAPI) CoreV1() corev1client.CoreV1Interface { return &memoryCore{p: a.p} }
func (c *memoryCore) Nodes() corev1client.NodeInterface   { return &memoryNodes{p: c.p} }

func (n *memoryNodes) Get(ctx context.Context, name string, _ metav1.GetOptions) (*corev1.Node, error) {
	out := &corev1.Node{}
	return out, n.p.call(ctx, func() error { return n.p.store.get(client.ObjectKey{Name: name}, out) })
}

func (n *memoryNodes) Patch(ctx context.Context, name string, _ types.PatchType, body []byte, _ metav1.PatchOptions, _ ...string) (*corev1.Node, error) {
	out := &corev1.Node{}
	return out, n.p.call(ctx, func() error { return n.p.store.patch(n.p.name, client.ObjectKey{Name: name}, out, body, false) })
}

// silent records no Events.
type silent struct{}

func (silent) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}

// pick returns a random element.
func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// some returns a random duration up to a bound.
func some(r *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(most))) + time.Millisecond
}
