package manifest

import (
	"fmt"
	"io"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// Set is the content of manifests: each kind in the order in which it was read, with defaults
// filled in.
type Set struct {
	Operations          []*v1alpha1.Operation
	OperationSets       []*v1alpha1.OperationSet
	Triggers            []*v1alpha1.Trigger
	Diagnoses           []*v1alpha1.Diagnosis
	RemediationPolicies []*v1alpha1.RemediationPolicy

	documents map[identity]*document.Object
}

// Object is an object of one of the kinds.
type Object = client.Object

type identity struct{ kind, namespace, name string }

// Reader reads manifests. It may be used by several goroutines at once.
type Reader struct{ kinds map[string]*kind }

// NewReader returns a Reader. This takes some 20 ms, because it compiles the schemas' rules.
func NewReader() (*Reader, error) {
	kinds, err := readKinds()
	if err != nil {
		return nil, err
	}
	return &Reader{kinds: kinds}, nil
}

// Load reads files and folders; "-" is stdin. It returns a [document.Errors] with all mistakes, or
// why a file can't be read.
func Load(paths []string, stdin io.Reader) (*Set, error) {
	r, err := NewReader()
	if err != nil {
		return nil, err
	}
	files, err := document.ReadFiles(paths, stdin)
	if err != nil {
		return nil, err
	}
	return r.Parse(files...)
}

// Parse parses files. It returns a [document.Errors] with all mistakes.
func (r *Reader) Parse(files ...document.File) (*Set, error) {
	s := &Set{documents: make(map[identity]*document.Object)}
	var all document.Errors
	for _, f := range files {
		documents, errs := document.Parse(f)
		for _, d := range documents {
			errs = append(errs, s.add(r.kinds, d)...)
		}
		errs.Sort()
		all = append(all, errs...)
	}
	if err := all.Err(); err != nil {
		return nil, err
	}
	return s, nil
}

// add adds a document to the set.
func (s *Set) add(kinds map[string]*kind, d *document.Object) document.Errors {
	obj, errs := readObject(kinds, d)
	if len(errs) > 0 {
		return errs
	}
	id := identity{d.Text("kind"), obj.GetNamespace(), obj.GetName()}
	if first := s.documents[id]; first != nil {
		return document.Errors{d.At(d.FindKey("metadata.name"), "metadata.name", "%s %s is already defined at %s:%d", id.kind, id.name, first.File, first.Root.Line)}
	}
	s.documents[id] = d
	switch obj := obj.(type) {
	case *v1alpha1.Operation:
		s.Operations = append(s.Operations, obj)
	case *v1alpha1.OperationSet:
		s.OperationSets = append(s.OperationSets, obj)
	case *v1alpha1.Trigger:
		s.Triggers = append(s.Triggers, obj)
	case *v1alpha1.Diagnosis:
		s.Diagnoses = append(s.Diagnoses, obj)
	case *v1alpha1.RemediationPolicy:
		s.RemediationPolicies = append(s.RemediationPolicies, obj)
	}
	return nil
}

// Objects returns all objects, kind by kind.
func (s *Set) Objects() []Object {
	var all []Object
	all = appendObjects(all, s.Operations)
	all = appendObjects(all, s.OperationSets)
	all = appendObjects(all, s.Triggers)
	all = appendObjects(all, s.Diagnoses)
	return appendObjects(all, s.RemediationPolicies)
}

func appendObjects[O Object](all []Object, objects []O) []Object {
	for _, o := range objects {
		all = append(all, o)
	}
	return all
}

// Operation returns the Operation with the name, or nil.
func (s *Set) Operation(name string) *v1alpha1.Operation { return Named(s.Operations, name) }

// OperationSet returns the OperationSet with the name, or nil.
func (s *Set) OperationSet(name string) *v1alpha1.OperationSet { return Named(s.OperationSets, name) }

// Named returns the object with a name, or nil.
func Named[O Object](objects []O, name string) (found O) {
	for _, o := range objects {
		if o.GetName() == name {
			return o
		}
	}
	return found
}

// At returns an error about one of the set's objects, with its position. field is a path like
// spec.adjacencyList[2].to.
func (s *Set) At(obj Object, field, format string, args ...any) *document.Error {
	id := identity{obj.GetObjectKind().GroupVersionKind().Kind, obj.GetNamespace(), obj.GetName()}
	d := s.documents[id]
	if d == nil {
		return &document.Error{File: id.kind + " " + id.name, Field: field, Msg: fmt.Sprintf(format, args...)}
	}
	return d.At(d.FindKey(field), field, format, args...)
}
