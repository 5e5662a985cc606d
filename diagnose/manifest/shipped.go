package manifest

import (
	"cmp"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/kernosis/kernosis/collector/document"
)

// sets has the OperationSets that are part of Kernosis, with the Operations that they need besides
// built-ins, and the Triggers that start them: one file each, named after its set.
//
//go:embed sets/*.yaml
var sets embed.FS

// Description is the annotation with the purpose of an OperationSet.
const Description = "kernosis.io/description"

// ShippedNames returns the names of the OperationSets that are part of Kernosis, sorted.
func ShippedNames() []string {
	names, _ := fs.Glob(sets, "sets/*.yaml") // the pattern is valid
	for i := range names {
		names[i] = strings.TrimSuffix(path.Base(names[i]), ".yaml")
	}
	return names
}

// ShippedFile returns the manifest of a shipped OperationSet.
func ShippedFile(name string) (document.File, error) {
	if names := ShippedNames(); !slices.Contains(names, name) {
		return document.File{}, fmt.Errorf("no shipped OperationSet is named %.80q%s there are %s", name,
			cmp.Or(document.Suggest(name, names), ";"), strings.Join(names, ", "))
	}
	data, err := sets.ReadFile("sets/" + name + ".yaml")
	return document.File{Name: name + ".yaml", Data: data}, err
}

// ShippedFiles returns the manifests of all shipped OperationSets.
func ShippedFiles() ([]document.File, error) {
	var files []document.File
	for _, name := range ShippedNames() {
		f, err := ShippedFile(name)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// Shipped parses a shipped OperationSet.
func Shipped(name string) (*Set, error) {
	file, err := ShippedFile(name)
	if err != nil {
		return nil, err
	}
	r, err := NewReader()
	if err != nil {
		return nil, err
	}
	return r.Parse(file)
}
