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
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/diagnose/api/crds"
)

// fieldManager is the field manager of the CRDs.
const fieldManager = "kernosis-crds"

// finalizers is the prefix of our finalizers, which nobody else would remove.
const finalizers = "kernosis.io/"

// look is the polling interval of the API server.
const look = 250 * time.Millisecond

// nudges is the minimum time between two nudges of the API server.
const nudges = 2 * time.Second

// nudgedAt is the annotation of a CRD for which the deletion had to be requested again.
const nudgedAt = finalizers + "deletion-asked-at"

// shown bounds how many objects a message names.
const shown = 5

// kind is one CRD.
type kind struct {
	definition *unstructured.Unstructured
	resource   schema.GroupVersionResource // of its objects
}

// kinds returns the CRDs of this build, sorted by name.
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
		// The API server sets both.
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

// resourceOf returns the resource of a kind's objects in API paths, in the storage version.
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
		return r, errors.New("group, plural name or storage version is missing")
	}
	return r, nil
}

// definitions returns a client for the CRDs of an API server, and the CRDs of this build.
func definitions(of *rest.Config) (api dynamic.ResourceInterface, own []kind, err error) {
	client, err := dynamic.NewForConfig(of)
	if err != nil {
		return nil, nil, err
	}
	own, err = kinds()
	return client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}), own, err
}

// ApplyKinds applies the CRDs of this build, replacing those of another build, and waits until
// objects of all kinds can be written. It calls say for each CRD.
func ApplyKinds(ctx context.Context, to *rest.Config, say func(string)) error {
	api, all, err := definitions(to)
	if err != nil {
		return err
	}
	var errs []error
	for _, k := range all {
		// Apply all before waiting for the first.
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

const noAnswer = "the API server does not respond"

// apply writes a CRD. If it is being deleted, applying does not stop that: apply waits until it is
// gone and applies it again.
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
		return "it is still being deleted"
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

// DeleteKinds deletes the CRDs and thereby all their objects, and waits until they are gone. It
// removes finalizers of kernosis.io, because their controller no longer runs. Objects with other
// finalizers stay until those are removed; DeleteKinds names them at once and when ctx ends. It
// calls say for each CRD.
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
			say(name + " was not found")
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

// awaitGone waits until a CRD is gone, and removes our finalizers from its objects.
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
			return false, err // keep the last known holders
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
			return "its objects still exist" + failure
		}
		return holders(held)
	})
}

func holders(held []string) string { return "held by other finalizers: " + display.List(held, shown) }

// givenUp reports whether the API server has failed to delete a CRD's objects. It often fails at
// once with "storage is (re)initializing" if they were never listed. It then retries with the CRD
// from before it recorded the failure, gets a conflict, and assumes that another change will
// trigger the next try. No such change comes, so it retries only at its resync of all CRDs, every
// five minutes.
func givenUp(terminating condition) bool {
	return terminating.Reason == "InstanceDeletionFailed" || terminating.Reason == "InstanceDeletionCheck"
}

// nudge changes an annotation of a CRD that is being deleted, so that the API server tries again.
// If that is forbidden, the API server retries only at its resync.
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
	return client.IgnoreNotFound(err)
}

// free removes our finalizers from objects that are being deleted, and returns those held by other
// finalizers.
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
	// NotFound: the kind is no longer served, so it has just been deleted.
	return held, client.IgnoreNotFound(err)
}

// setFinalizers writes an object's finalizers unless the object has changed since it was read; the
// next poll handles that case.
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
	return client.IgnoreNotFound(err)
}
