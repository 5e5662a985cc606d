package main

import (
	"bytes"
	"cmp"
	"crypto/sha256" // go-digest needs it linked, too
	"encoding/hex"
	"path"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/uuid"
	"github.com/package-url/packageurl-go"
)

// Licences of Kernosis.
const (
	licence    = "Apache-2.0"
	bpfLicence = "GPL-2.0-only OR BSD-2-Clause"
	allOfIt    = licence + " AND (" + bpfLicence + ")"
)

// bom returns the CycloneDX document of programs: each program, the modules linked into it, and its
// BPF objects. A program does not record which module requires which, so each program depends on
// all its modules.
func (b *builder) bom(programs []*program) ([]byte, error) {
	url := moduleURL(modulePath, b.version)
	root := cdx.Component{
		BOMRef: url, PackageURL: url, Type: cdx.ComponentTypeApplication, Name: "kernosis", Version: b.version, Licenses: licensed(allOfIt),
	}
	var components []cdx.Component
	var objects, tops []string
	for _, o := range b.objects {
		components = append(components, cdx.Component{
			BOMRef: o.name, Type: cdx.ComponentTypeFile, Name: o.name, Version: b.version,
			Description: "BPF object within the program", Hashes: hashes(o.content), Licenses: licensed(bpfLicence),
		})
		objects = append(objects, o.name)
	}
	var needs []cdx.Dependency
	linked := map[string]bool{}
	for _, p := range programs {
		c := cdx.Component{
			BOMRef: programPath + " " + p.String(), Type: cdx.ComponentTypeFile, Name: programPath, Version: b.version,
			Hashes: hashes(p.content), Licenses: licensed(allOfIt), Properties: &[]cdx.Property{{Name: "kernosis:platform", Value: p.String()}},
		}
		uses := slices.Clone(objects)
		for _, m := range linkedInto(p.info) {
			linked[m.path] = true
			uses = append(uses, moduleURL(m.path, m.version))
		}
		slices.Sort(uses)
		needs = append(needs, cdx.Dependency{Ref: c.BOMRef, Dependencies: &uses})
		components, tops = append(components, c), append(tops, c.BOMRef)
	}
	for _, m := range b.modules {
		if linked[m.path] {
			components = append(components, m.component())
		}
	}
	slices.SortFunc(components, func(a, b cdx.Component) int { return cmp.Compare(a.BOMRef, b.BOMRef) })
	slices.Sort(tops)
	needs = append(needs, cdx.Dependency{Ref: root.BOMRef, Dependencies: &tops})
	slices.SortFunc(needs, func(a, b cdx.Dependency) int { return cmp.Compare(a.Ref, b.Ref) })

	doc := cdx.NewBOM()
	doc.Metadata = &cdx.Metadata{Timestamp: b.created.Format(time.RFC3339), Component: &root}
	doc.Components, doc.Dependencies = &components, &needs
	text, err := encode(doc)
	if err != nil {
		return nil, err
	}
	// The serial number is derived from the contents: equal documents have equal numbers.
	doc.SerialNumber = uuid.NewSHA1(uuid.NameSpaceURL, text).URN()
	return encode(doc)
}

// encode writes a document in the version of the format that most tools support.
func encode(doc *cdx.BOM) ([]byte, error) {
	var buf bytes.Buffer
	err := cdx.NewBOMEncoder(&buf, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(doc, cdx.SpecVersion1_6)
	return buf.Bytes(), err
}

func (m *module) component() cdx.Component {
	url := moduleURL(m.path, m.version)
	c := cdx.Component{
		BOMRef: url, PackageURL: url, Type: cdx.ComponentTypeLibrary, Name: m.path, Version: m.version, Licenses: found(m.ids),
	}
	if m.sum != "" {
		// h1: is the hash of a list of files, so it is not a hash of a file as CycloneDX expects.
		c.Properties = &[]cdx.Property{{Name: "kernosis:go.sum", Value: m.sum}}
	}
	return c
}

// moduleURL returns the package URL of a Go module.
func moduleURL(module, version string) string {
	dir, name := path.Split(module)
	return packageurl.NewPackageURL(packageurl.TypeGolang, strings.TrimSuffix(dir, "/"), name, version, nil, "").ToString()
}

func licensed(expression string) *cdx.Licenses { return &cdx.Licenses{{Expression: expression}} }

// found returns licences by identifier. Files don't say whether all of them apply or one may be
// chosen.
func found(ids []string) *cdx.Licenses {
	all := cdx.Licenses{}
	for _, id := range ids {
		all = append(all, cdx.LicenseChoice{License: &cdx.License{ID: id}})
	}
	return &all
}

func hashes(content []byte) *[]cdx.Hash {
	sum := sha256.Sum256(content)
	return &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}}
}
