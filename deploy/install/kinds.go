package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/diagnose/api/crds"
)

// fieldManager is how the API names the writer of definitions.
const fieldManager = "kernosis-crds"

// finalizers of this domain are ours: nobody else would take them away.
const finalizers = "kernosis.io/"

// look is how often the API server is asked whether something has happened.
const look = 250 * time.Millisecond

// nudges is how long the API server has between two of them.
const nudges = 2 * time.Second

// nudgedAt is the annotation of a definition whose deletion had to be asked for again.
const nudgedAt = finalizers + "deletion-asked-at"

// shown bounds how many objects a message names.
const shown = 5

// kind is one definition.
type kind struct {
	definition *unstructured.Unstructured
	resource   schema.GroupVersionResource // of its objects
}

// Kinds returns the names of the definitions, such as "diagnoses.kernosis.io", sorted.
func Kinds() ([]string, error) {
	all, err := kinds()
	names := make([]string, len(all))
	for i, k := range all {
		names[i] = k.definition.GetName()
	}
	return names, err
}

func kinds() ([]kind, error) {
	files, err := fs.Glob(crds.Files, "*.yaml")
	if err != nil {
		return nil, err
	}
	all := make([]kind, 0, len(files))
	for _, file := range files {
		text, err := fs.ReadFile(crds.Files, file)
		if err != nil {
			return nil, err
		}
		k := kind{definition: &unstructured.Unstructured{}}
		if err := yaml.Unmarshal(text, &k.definition.Object); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		// Both are the API server's.
		unstructured.RemoveNestedField(k.definition.Object, "status")
		unstructured.RemoveNestedField(k.definition.Object, "metadata", "creationTimestamp")
		if k.resource, err = resourceOf(k.definition); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, k)
	}
	slices.SortFunc(all, func(a, b kind) int { return strings.Compare(a.definition.GetName(), b.definition.GetName()) })
	return all, nil
}

// resourceOf returns what the objects of a kind are called in paths, of the version
// that is stored.
func resourceOf(definition *unstructured.Unstructured) (r schema.GroupVersionResource, err error) {
	r.Group, _, _ = unstructured.NestedString(definition.Object, "spec", "group")
	r.Resource, _, _ = unstructured.NestedString(definition.Object, "spec", "names", "plural")
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	for _, v := range versions {
		if v, ok := v.(map[string]any); ok && v["storage"] == true {
			r.Version, _ = v["name"].(string)
		}
	}
	if r.Group == "" || r.Resource == "" || r.Version == "" {
		return r, errors.New("group, plural or stored version is missing")
	}
	return r, nil
}

// definitions returns those of an API server, and those of this build.
func definitions(of *rest.Config) (api dynamic.ResourceInterface, own []kind, err error) {
	client, err := dynamic.NewForConfig(of)
	if err != nil {
		return nil, nil, err
	}
	own, err = kinds()
	return client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}), own, err
}

// ApplyKinds applies the definitions of this build, over those of another one, and waits
// until objects of all of them can be written. It calls say for each.
func ApplyKinds(ctx context.Context, to *rest.Config, say func(string)) error {
	api, all, err := definitions(to)
	if err != nil {
		return err
	}
	var errs []error
	for _, k := range all {
		// All are applied before the first is waited for.
		if err := apply(ctx, api, k); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", k.definition.GetName(), err))
		}
		if over(ctx) {
			break
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, k := range all {
		name := k.definition.GetName()
		if err := established(ctx, api, name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		say(name + " is applied and established")
	}
	return nil
}

const noAnswer = "the API server does not answer"

// apply writes a definition. One that is being deleted would go in spite of that: it is
// applied again when it has gone.
func apply(ctx context.Context, api dynamic.ResourceInterface, k kind) error {
	var now *unstructured.Unstructured
	return every(ctx, look, func(ctx context.Context) (bool, error) {
		err := retry(ctx, func(ctx context.Context) (err error) {
			now, err = api.Apply(ctx, k.definition.GetName(), k.definition, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
			return err
		})
		return err == nil && now.GetDeletionTimestamp() == nil, err
	}, func() string {
		if now == nil {
			return noAnswer
		}
		return "it is being deleted"
	})
}

// established waits until objects of a kind can be written.
func established(ctx context.Context, api dynamic.ResourceInterface, name string) error {
	var conditions map[string]condition
	return every(ctx, look, func(ctx context.Context) (bool, error) {
		err := retry(ctx, func(ctx context.Context) error {
			definition, err := api.Get(ctx, name, metav1.GetOptions{})
			if err == nil {
				conditions = conditionsOf(definition)
			}
			return err
		})
		return conditions["Established"].Status == "True" && conditions["NamesAccepted"].Status == "True", err
	}, func() string {
		if conditions == nil {
			return noAnswer
		}
		for _, t := range []string{"NamesAccepted", "Established"} {
			if c := conditions[t]; c.Status != "True" {
				return fmt.Sprintf("it is not established: %s is %q: %s", t, c.Status, c.Message)
			}
		}
		return "it is not established"
	})
}

type condition struct{ Type, Status, Reason, Message string }

func conditionsOf(o *unstructured.Unstructured) map[string]condition {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	out := make(map[string]condition, len(list))
	for _, item := range list {
		m, _ := item.(map[string]any)
		var c condition
		c.Type, _ = m["type"].(string)
		c.Status, _ = m["status"].(string)
		c.Reason, _ = m["reason"].(string)
		c.Message, _ = m["message"].(string)
		out[c.Type] = c
	}
	return out
}

// DeleteKinds deletes the definitions, and with them all objects of these kinds, and
// waits until they are gone. Finalizers of kernosis.io are taken away, for nobody is
// left who would; those of others hold an object, and are named at once and when ctx ends.
// say gets a line for each definition.
func DeleteKinds(ctx context.Context, to *rest.Config, say func(string)) error {
	api, all, err := definitions(to)
	if err != nil {
		return err
	}
	objects, err := metadata.NewForConfig(to)
	if err != nil {
		return err
	}
	var errs []error
	var there []kind
	for _, k := range all {
		name := k.definition.GetName()
		switch err := retry(ctx, func(ctx context.Context) error { return api.Delete(ctx, name, metav1.DeleteOptions{}) }); {
		case apierrors.IsNotFound(err):
			say(name + " was not there")
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		default:
			there = append(there, k)
		}
	}
	for _, k := range there {
		if err := awaitGone(ctx, api, objects.Resource(k.resource), k.definition.GetName(), say); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", k.definition.GetName(), err))
			continue
		}
		say(k.definition.GetName() + " is deleted, with all its objects")
	}
	return errors.Join(errs...)
}

// awaitGone waits until a definition is gone, and frees what is held by our finalizers.
func awaitGone(ctx context.Context, api dynamic.ResourceInterface, objects metadata.Getter, name string, say func(string)) error {
	var held []string
	var failure, said string
	var nudged time.Time
	return every(ctx, look, func(ctx context.Context) (bool, error) {
		var deleting condition
		err := retry(ctx, func(ctx context.Context) error {
			definition, err := api.Get(ctx, name, metav1.GetOptions{})
			if err == nil {
				deleting = conditionsOf(definition)["Terminating"]
			}
			return err
		})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		now, err := free(ctx, objects)
		if err != nil {
			return false, err // what held them before is still known
		}
		held = now
		if text := holders(held); len(held) > 0 && text != said {
			said = text
			say(name + ": " + text)
		}
		if !givenUp(deleting) {
			return false, nil
		}
		failure = ": " + deleting.Message
		if time.Since(nudged) > nudges {
			nudged = time.Now()
			err = nudge(ctx, api, name, nudged)
		}
		return false, err
	}, func() string {
		if len(held) == 0 {
			return "its objects are not gone yet" + failure
		}
		return holders(held)
	})
}

func holders(held []string) string { return "finalizers of others hold " + display.List(held, shown) }

// givenUp reports whether the API server has failed to delete a definition's objects. It
// often does at once, with "storage is (re)initializing", where they were never listed;
// tries again with the definition as it was before it wrote of the failure; takes the
// conflict for somebody's change of which it will hear; and hears of none until it goes
// through all definitions, every five minutes.
func givenUp(terminating condition) bool {
	return terminating.Reason == "InstanceDeletionFailed" || terminating.Reason == "InstanceDeletionCheck"
}

// nudge changes a definition that is being deleted, by an annotation, for the API server
// to try again. Where that is not allowed, it does so in its own time.
func nudge(ctx context.Context, api dynamic.ResourceInterface, name string, at time.Time) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{nudgedAt: at.UTC().Format(time.RFC3339Nano)}}})
	if err != nil {
		return err
	}
	err = retry(ctx, func(ctx context.Context) error {
		_, err := api.Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: fieldManager})
		return err
	})
	if apierrors.IsForbidden(err) {
		return nil
	}
	return ignoreNotFound(err)
}

// free takes our finalizers from the objects that are being deleted, and returns those
// that others hold.
func free(ctx context.Context, objects metadata.Getter) (held []string, err error) {
	err = pages(ctx, func(ctx context.Context, o metav1.ListOptions) (string, error) {
		page, err := objects.List(ctx, o)
		if err != nil {
			return "", err
		}
		for i := range page.Items {
			m := &page.Items[i].ObjectMeta
			if m.DeletionTimestamp == nil || len(m.Finalizers) == 0 {
				continue
			}
			others := slices.DeleteFunc(slices.Clone(m.Finalizers), func(f string) bool { return strings.HasPrefix(f, finalizers) })
			if len(others) > 0 {
				held = append(held, strings.TrimPrefix(m.Namespace+"/"+m.Name, "/")+" ("+strings.Join(others, ", ")+")")
			}
			if len(others) < len(m.Finalizers) {
				if err := setFinalizers(ctx, objects, m, others); err != nil {
					return "", err
				}
			}
		}
		return page.Continue, nil
	})
	// The kind is not served any more: it has just gone.
	return held, ignoreNotFound(err)
}

// setFinalizers writes them if the object is as it was read; where it is not, the next
// look sees it.
func setFinalizers(ctx context.Context, objects metadata.Getter, m *metav1.ObjectMeta, left []string) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": left, "resourceVersion": m.ResourceVersion}})
	if err != nil {
		return err
	}
	var of metadata.ResourceInterface = objects
	if m.Namespace != "" {
		of = objects.Namespace(m.Namespace)
	}
	_, err = of.Patch(ctx, m.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: fieldManager})
	if apierrors.IsConflict(err) {
		return nil
	}
	return ignoreNotFound(err)
}
