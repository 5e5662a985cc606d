package chart_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// Each value has a comment: its own, that of its section, or that of the key above it that it
// belongs to.
func TestEachValueIsExplained(t *testing.T) {
	text, err := os.ReadFile("kernosis/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	// Values that are Kubernetes' own, with its names.
	known := []string{"nodeSelector", "tolerations", "affinity", "podLabels", "podAnnotations", "serviceAccountAnnotations", "priorityClassName", "pullPolicy", "repository",
		"extraEnv", "extraArgs", "extraVolumes", "extraVolumeMounts", "updateStrategy", "resources", "labels", "annotations", "interval"}
	n := 0
	var walk func(path string, m *yaml.Node, explained bool)
	walk = func(path string, m *yaml.Node, explained bool) {
		for i := 0; i+1 < len(m.Content); i += 2 {
			key, value := m.Content[i], m.Content[i+1]
			own := key.HeadComment != "" || value.HeadComment != "" || key.LineComment != "" || value.LineComment != ""
			n++
			if !own && !explained && !slices.Contains(known, key.Value) && value.Kind != yaml.MappingNode {
				t.Errorf("%s%s: nothing says what it is for", path, key.Value)
			}
			if value.Kind == yaml.MappingNode && !slices.Contains(known, key.Value) {
				walk(path+key.Value+".", value, own)
			}
		}
	}
	walk("", doc.Content[0], false)
	if n < 80 {
		t.Errorf("only %d values", n)
	}
}

// What the hardened profile has is what the documentation gives reasons for.
func TestCapabilitiesHaveTheirReasons(t *testing.T) {
	values := valuesOf(t, "kernosis/values.yaml")
	list := values["agent"].(map[string]any)["hardened"].(map[string]any)["capabilities"].([]any)
	var want []string
	for _, c := range list {
		want = append(want, c.(string))
	}
	slices.Sort(want)
	for page, row := range map[string]string{
		"../../docs/capabilities.md": "(?m)^\\| `CAP_([A-Z_]+)` \\|",
		"../../docs/install.md":      "(?m)^\\| `([A-Z_]+)` \\|",
	} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		_, section, _ := strings.Cut(string(text), "\n## Hardened\n")
		section, _, _ = strings.Cut(section, "\n## ")
		var got []string
		for _, m := range regexp.MustCompile(row).FindAllStringSubmatch(section, -1) {
			got = append(got, m[1])
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, the chart has %v", page, got, want)
		}
	}
}

// Settings that pages name are there.
func TestPagesNameValuesThatAreThere(t *testing.T) {
	top := readSchema(t)
	for _, page := range []string{"install.md", "migrate.md", "security.md", "controller.md", "fleet.md"} {
		text, err := os.ReadFile("../../docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("[` ]((?:agent|npd|image|controller|alerts|repairs|admission|monitoring|uninstall|priorityClassQuota|flowControl|diagnoseSets|crds|networkPolicy)\\.[a-zA-Z.-]+[a-zA-Z])").FindAllStringSubmatch(string(text), -1) {
			at := top
			for name := range strings.SplitSeq(m[1], ".") {
				if ref, ok := strings.CutPrefix(at.Ref, "#/definitions/"); ok {
					at = top.Definitions[ref]
				}
				next, ok := at.Properties[name]
				if !ok && !strings.HasSuffix(m[1], ".md") && !strings.HasSuffix(m[1], ".io") {
					t.Errorf("%s: there is no value %s", page, m[1])
					break
				}
				at = next
			}
		}
	}
}
