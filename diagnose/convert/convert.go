package convert

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/manifest"
)

// Result is the result of a conversion.
type Result struct {
	// YAML has the objects, in the order of the input.
	YAML     []byte
	Findings []Finding // in the order of the input
}

// Finding is something about the input that the user must know.
type Finding struct {
	// Lost: it is not in the output. Otherwise it is in the output, but has another meaning or needs a
	// check.
	Lost bool

	File     string
	Line     int
	Document int    // in the file, from 1
	Kind     string // of the object
	Name     string
	Field    string // path as spec.processor.function; empty: the whole object
	Reason   string
}

// String returns one line of text. Terminal control characters are escaped.
func (f *Finding) String() string {
	const most = 1024
	what := "note"
	if f.Lost {
		what = "lost"
	}
	parts := []string{fmt.Sprintf("%s:%d: %s: document %d: %s", display.Safe(f.File, most), f.Line, what, f.Document, display.Safe(f.Kind+" "+f.Name, most))}
	if f.Field != "" {
		parts = append(parts, display.Safe(f.Field, most))
	}
	return strings.Join(append(parts, display.Safe(f.Reason, most)), ": ")
}

// Lost reports whether anything of the input is missing in the output.
func (r *Result) Lost() bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Lost })
}

// Convert converts files; the reader checks the output. If KubeDiag would not accept a file, for example because of an unknown
// key, it returns a [document.Errors] with all mistakes, and no result.
func Convert(reader *manifest.Reader, files ...document.File) (*Result, error) {
	r := &Result{}
	var mistakes document.Errors
	for _, f := range files {
		documents, errs := document.Parse(f)
		for _, d := range documents {
			j := &job{doc: d, reader: reader}
			text := j.run()
			if text == nil { // notes about a lost object are useless
				j.findings = slices.DeleteFunc(j.findings, func(f Finding) bool { return !f.Lost })
			}
			errs = append(errs, j.mistakes...)
			r.Findings = append(r.Findings, j.findings...)
			if text == nil {
				continue
			}
			if len(r.YAML) > 0 {
				r.YAML = append(r.YAML, "---\n"...)
			}
			r.YAML = append(r.YAML, text...)
		}
		errs.Sort()
		mistakes = append(mistakes, errs...)
	}
	if err := mistakes.Err(); err != nil {
		return nil, err
	}
	return r, nil
}

type job struct {
	doc      *document.Object
	reader   *manifest.Reader
	kind     string
	name     string
	findings []Finding
	mistakes document.Errors
}

// run returns the converted object's text, or nil if there is none.
func (j *job) run() []byte {
	j.kind, j.name = j.doc.Text("kind"), "without a name"
	if name := document.Child(document.Child(j.doc.Root, "metadata"), "name"); name != nil && name.Value != "" {
		j.name = name.Value
	}
	if v := j.doc.Text("apiVersion"); v != kubediagVersion {
		j.lost("apiVersion", "%q is not %s: left out", v, kubediagVersion)
		return nil
	}
	obj := j.object()
	if obj == nil || len(j.mistakes) > 0 {
		return nil
	}
	text, err := write(obj)
	if err != nil {
		j.lost("", "%s", err)
		return nil
	}
	return j.checked(text)
}

// object returns the converted document, or nil if there is none.
func (j *job) object() manifest.Object {
	switch j.kind {
	case "Operation":
		return converted(j, j.operation)
	case "OperationSet":
		return converted(j, j.operationSet)
	case "Trigger":
		return converted(j, j.trigger)
	case "Diagnosis":
		return converted(j, j.diagnosis)
	}
	j.lost("", "the kind has no counterpart: left out")
	return nil
}

// converted returns the result of a conversion of the document, or nil if KubeDiag would not accept it.
func converted[T any](j *job, conversion func(from *T) manifest.Object) manifest.Object {
	var from T
	if !j.decode(&from) {
		return nil
	}
	return conversion(&from)
}

// decode decodes the document. What KubeDiag would not have accepted is a mistake.
func (j *job) decode(into any) bool {
	text, err := json.Marshal(document.Value(j.doc.Root))
	if err != nil {
		j.mistake("", "%s", err)
		return false
	}
	strict, err := kjson.UnmarshalStrict(text, into)
	if err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			j.mistake(wrong.Field, "want %s, have %s", wrong.Type, wrong.Value)
			return false
		}
		j.mistake("", "%s", err)
	}
	for _, e := range strict {
		field := ""
		if f, ok := errors.AsType[kjson.FieldError](e); ok {
			field = f.FieldPath()
		}
		j.mistake(field, "%s", strings.TrimSuffix(e.Error(), ` "`+field+`"`))
	}
	return len(j.mistakes) == 0
}

// checked returns the text if our schemas accept it. Otherwise it records their errors as lost.
func (j *job) checked(text []byte) []byte {
	_, err := j.reader.Parse(document.File{Name: j.doc.File, Data: text})
	errs, ok := errors.AsType[document.Errors](err)
	switch {
	case err == nil:
		return text
	case !ok:
		j.lost("", "%s: left out", err)
	}
	const most = 20
	for i, e := range errs {
		if i == most {
			j.lost("", "and %d more of the kind", len(errs)-most)
			break
		}
		j.lost(e.Field, "%s: the %s is left out", e.Msg, j.kind)
	}
	return nil
}

func (j *job) mistake(field, format string, args ...any) {
	j.mistakes = append(j.mistakes, j.doc.At(j.doc.FindKey(field), field, format, args...))
}

func (j *job) lost(field, format string, args ...any) { j.found(true, field, format, args...) }
func (j *job) note(field, format string, args ...any) { j.found(false, field, format, args...) }

func (j *job) found(lost bool, field, format string, args ...any) {
	at := j.doc.At(j.doc.FindKey(field), field, format, args...)
	j.findings = append(j.findings, Finding{
		Lost: lost, File: at.File, Line: at.Line, Document: j.doc.Number, Kind: j.kind, Name: j.name, Field: at.Field, Reason: at.Msg,
	})
}

// metadata returns the parts of the metadata that are kept, and reports the rest.
func (j *job) metadata(from *object) metav1.ObjectMeta {
	m := &from.Metadata
	const applied = "kubectl.kubernetes.io/last-applied-configuration" // of the old object
	delete(m.Annotations, applied)
	if len(m.Annotations) == 0 {
		m.Annotations = nil
	}
	if len(m.OwnerReferences) > 0 {
		j.lost("metadata.ownerReferences", "the owners are KubeDiag's objects")
	}
	if len(m.Finalizers) > 0 {
		j.lost("metadata.finalizers", "nothing here would remove them")
	}
	return metav1.ObjectMeta{Name: m.Name, GenerateName: m.GenerateName, Namespace: m.Namespace, Labels: m.Labels, Annotations: m.Annotations}
}

func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion().String(), Kind: kind}
}

// write formats an object as people write it: without status and empty fields.
func write(obj manifest.Object) ([]byte, error) {
	text, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	var value map[string]any
	numbers := json.NewDecoder(bytes.NewReader(text))
	numbers.UseNumber()
	if err := numbers.Decode(&value); err != nil {
		return nil, err
	}
	delete(value, "status")
	return yaml.Marshal(value)
}
