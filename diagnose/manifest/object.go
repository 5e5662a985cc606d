package manifest

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// readObject reads a document, with defaults filled in.
func readObject(kinds map[string]*kind, d *document.Object) (Object, document.Errors) {
	w := &walker{doc: d}
	k := w.kind(kinds)
	if k == nil {
		return nil, w.errors
	}
	whole := &schema{Type: "object", Properties: map[string]*schema{
		"apiVersion": {}, "kind": {}, "metadata": {}, "spec": k.spec, "status": {}, // listed in errors about unknown keys
	}}
	if k.spec.Default == nil {
		whole.Required = []string{"spec"}
	}
	value := map[string]any{"apiVersion": d.Text("apiVersion"), "kind": k.name}
	only := *d.Root
	only.Content = nil
	for i := 0; i+1 < len(d.Root.Content); i += 2 {
		switch key := d.Root.Content[i]; key.Value {
		case "apiVersion", "kind", "status":
		case "metadata":
			value["metadata"] = document.Value(d.Root.Content[i+1])
		default:
			only.Content = append(only.Content, key, d.Root.Content[i+1])
		}
	}
	object := w.object(&only, whole, "").(map[string]any)
	value["spec"] = object["spec"]
	w.metadata(k, value["metadata"])
	if len(w.errors) == 0 {
		w.rules(value["spec"], k.spec, "spec.")
		w.rules(value, &schema{Rules: k.rules}, "")
	}
	if len(w.errors) > 0 {
		return nil, w.errors
	}
	obj, err := typed(k, value)
	if err != nil {
		w.wrong(d.Root, "", "%s", err)
		return nil, w.errors
	}
	return obj, nil
}

// kind returns the kind that the document declares.
func (w *walker) kind(kinds map[string]*kind) *kind {
	d := w.doc
	want := v1alpha1.GroupVersion().String()
	if have := d.Text("apiVersion"); have != want {
		w.wrong(d.FindKey("apiVersion"), "apiVersion", "want %s, have %q", want, have)
		return nil
	}
	k := kinds[d.Text("kind")]
	if k == nil {
		w.wrong(d.FindKey("kind"), "kind", "%q: want one of %s", d.Text("kind"), strings.Join(slices.Sorted(maps.Keys(kinds)), ", "))
	}
	return k
}

// metadata checks the metadata, as the API server does for all kinds.
func (w *walker) metadata(k *kind, value any) {
	var meta metav1.ObjectMeta
	at := func(path, format string, args ...any) {
		w.errors = append(w.errors, w.doc.At(w.doc.FindKey(path), path, format, args...))
	}
	object, ok := value.(map[string]any)
	if !ok {
		at("metadata", "is required, with a name")
		return
	}
	text, err := json.Marshal(object)
	if err != nil {
		at("metadata", "%s", err)
		return
	}
	strict, err := kjson.UnmarshalStrict(text, &meta)
	if err != nil {
		at("metadata", "%s", err)
		return
	}
	for _, e := range strict {
		path := "metadata"
		if f, ok := errors.AsType[kjson.FieldError](e); ok {
			path += "." + f.FieldPath()
		}
		at(path, "%s", e)
	}
	if meta.Name == "" {
		at("metadata.name", "is required")
		return
	}
	if k.namespaced && meta.Namespace == "" {
		meta.Namespace = metav1.NamespaceDefault // set when it is created
	}
	for _, e := range validation.ValidateObjectMeta(&meta, k.namespaced, validation.NameIsDNSSubdomain, field.NewPath("metadata")) {
		at(e.Field, "%s", e.ErrorBody())
	}
}

// typed converts a value that follows the schema to the kind's Go type.
func typed(k *kind, value map[string]any) (Object, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	made, err := scheme.New(v1alpha1.GroupVersion().WithKind(k.name))
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	strict, err := kjson.UnmarshalStrict(text, made)
	if err = errors.Join(append(strict, err)...); err != nil {
		return nil, err
	}
	return made.(Object), nil
}
