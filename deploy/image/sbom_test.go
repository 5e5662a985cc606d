package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/package-url/packageurl-go"
)

func readBOM(t *testing.T, text []byte) *cdx.BOM {
	t.Helper()
	var doc cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(text), cdx.BOMFileFormatJSON).Decode(&doc); err != nil {
		t.Fatal(err)
	}
	return &doc
}

func sum(content []byte) string {
	s := sha256.Sum256(content)
	return hex.EncodeToString(s[:])
}

// The document in dist covers all platforms, and each image contains the one of its platform.
func TestBillOfMaterials(t *testing.T) {
	dir := image(t)
	l := readLayout(t)
	checkBOM(t, read(t, dir, "kernosis.cdx.json"), "amd64", "arm64")
	for _, arch := range []string{"amd64", "arm64"} {
		checkBOM(t, l.image(t, arch).entries[sbomPath].content, arch)
	}
}

func checkBOM(t *testing.T, text []byte, archs ...string) {
	t.Helper()
	validate(t, bomSchema(t), text)
	doc := readBOM(t, text)
	if doc.SpecVersion != cdx.SpecVersion1_6 || doc.Metadata.Timestamp != "2023-11-14T22:13:20Z" || !strings.HasPrefix(doc.SerialNumber, "urn:uuid:") {
		t.Errorf("version %s of %s, number %s", doc.SpecVersion, doc.Metadata.Timestamp, doc.SerialNumber)
	}
	root := doc.Metadata.Component
	if root.Name != "kernosis" || root.Version != testVersion || root.PackageURL != "pkg:golang/github.com/kernosis/kernosis@"+testVersion {
		t.Errorf("it is of %s %s, %s", root.Name, root.Version, root.PackageURL)
	}
	components := map[string]cdx.Component{}
	for _, c := range *doc.Components {
		if _, twice := components[c.BOMRef]; twice {
			t.Errorf("duplicate %s", c.BOMRef)
		}
		components[c.BOMRef] = c
		if c.Licenses == nil || len(*c.Licenses) == 0 {
			t.Errorf("%s has no licence", c.BOMRef)
		}
	}
	needs := map[string][]string{}
	for _, d := range *doc.Dependencies {
		needs[d.Ref] = *d.Dependencies
		for _, ref := range needs[d.Ref] {
			if _, ok := components[ref]; !ok {
				t.Errorf("%s needs %s, which is not there", d.Ref, ref)
			}
		}
	}
	dir, named := image(t), map[string]bool{}
	for _, arch := range archs {
		path := filepath.Join(dir, programFile(arch))
		ref := "usr/bin/kernosis linux/" + arch
		named[ref] = true
		if c := components[ref]; c.Hashes == nil || (*c.Hashes)[0].Value != sum(read(t, path)) {
			t.Errorf("%s: not the program's sum: %+v", arch, c)
		}
		if !slices.Contains(needs[root.BOMRef], ref) {
			t.Errorf("%s is no part of %s", ref, root.BOMRef)
		}
		p, err := readProgram(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range linkedInto(p.info) {
			url := "pkg:golang/" + strings.ToLower(m.path) + "@" + m.version
			named[url] = true
			c := components[url]
			if c.Name != m.path || c.Version != m.version || c.PackageURL != url {
				t.Errorf("%s: %+v", url, c)
			}
			if _, err := packageurl.FromString(c.PackageURL); err != nil {
				t.Error(err)
			}
			if m.sum != "" && (c.Properties == nil || (*c.Properties)[0].Value != m.sum) {
				t.Errorf("%s: %+v, want the sum %s", url, c.Properties, m.sum)
			}
			if !slices.Contains(needs[ref], url) {
				t.Errorf("%s does not need %s", ref, url)
			}
		}
	}
	objects, err := readFiles(moduleRoot, "bpf/*.o")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		named[o.name] = true
		c := components[o.name]
		if c.Hashes == nil || (*c.Hashes)[0].Value != sum(o.content) || (*c.Licenses)[0].Expression != "GPL-2.0-only OR BSD-2-Clause" {
			t.Errorf("%s: %+v", o.name, c)
		}
	}
	for ref := range components {
		if !named[ref] {
			t.Errorf("%s is in no program", ref)
		}
	}
}

// Well-known licences of modules that are unlikely to change them.
func TestLicencesAreRecognised(t *testing.T) {
	doc := readBOM(t, read(t, image(t), "kernosis.cdx.json"))
	want := map[string][]string{
		"stdlib":                    {"BSD-3-Clause"},
		"golang.org/x/sys":          {"BSD-3-Clause"},
		"github.com/cilium/ebpf":    {"MIT"},
		"k8s.io/client-go":          {"Apache-2.0"},
		"github.com/spf13/pflag":    {"BSD-3-Clause"},
		"github.com/godbus/dbus/v5": {"BSD-2-Clause"},
	}
	for _, c := range *doc.Components {
		ids, ok := want[c.Name]
		if !ok {
			continue
		}
		delete(want, c.Name)
		var got []string
		for _, l := range *c.Licenses {
			got = append(got, l.License.ID)
		}
		if !slices.Equal(got, ids) {
			t.Errorf("%s: %v, want %v", c.Name, got, ids)
		}
	}
	for name := range want {
		t.Errorf("no %s", name)
	}
}
