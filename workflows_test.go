package kernosis_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// Workflows use existing targets of the Makefile and kernels of the matrix.
func TestWorkflowsCallWhatIsThere(t *testing.T) {
	makefile, kernels := read(t, "Makefile"), read(t, "vmtest/kernels.txt")
	target := regexp.MustCompile(`\bmake:? ([a-z][a-z-]*)`)
	kernel := regexp.MustCompile(`KERNEL=([\w.-]+)`)
	calls := 0
	for name, text := range texts(t, ".github/workflows/*.yml") {
		for line := range strings.Lines(text) {
			if strings.HasPrefix(strings.TrimSpace(line), "#") {
				continue
			}
			for _, m := range target.FindAllStringSubmatch(line, -1) {
				calls++
				if !strings.Contains(makefile, "\n"+m[1]+":") {
					t.Errorf("%s: there is no target %s: %s", name, m[1], strings.TrimSpace(line))
				}
			}
			for _, m := range kernel.FindAllStringSubmatch(line, -1) {
				if !strings.Contains(kernels, "\n"+m[1]+" ") {
					t.Errorf("%s: vmtest/kernels.txt has no kernel %s", name, m[1])
				}
			}
		}
	}
	if calls < 10 {
		t.Errorf("found %d calls of make", calls)
	}
}

// The names in SECURITY.md for verifying a release are those that the workflow signs.
func TestSecurityPolicyNamesWhatIsSigned(t *testing.T) {
	policy := read(t, "SECURITY.md")
	for _, part := range []string{
		"https://" + module + "/.github/workflows/release.yml@refs/tags/$VERSION",
		"ghcr.io/kernosis/kernosis:${VERSION#v}",
		"ghcr.io/kernosis/charts/kernosis:${VERSION#v}",
		"SHA256SUMS.sigstore.json",
	} {
		if !strings.Contains(policy, part) {
			t.Errorf("SECURITY.md lacks %s", part)
		}
	}
	workflow := read(t, ".github/workflows/release.yml")
	for _, part := range []string{
		"IMAGE: ghcr.io/${{ github.repository }}\n",
		"CHARTS: ghcr.io/${{ github.repository_owner }}/charts\n",
		// The tag used by the chart and the manifests in git.
		`skopeo copy --all --preserve-digests --digestfile digest oci-archive:dist/kernosis-image.tar "docker://$IMAGE:${VERSION#v}"`,
		`cosign sign --yes --recursive "$IMAGE@$DIGEST"`,
		`cosign sign --yes "$CHARTS/kernosis@$DIGEST"`,
		"cosign attest --yes --type cyclonedx ",
		".sigstore.json",
	} {
		if !strings.Contains(workflow, part) {
			t.Errorf("release.yml lacks %s", part)
		}
	}
	if strings.Contains(workflow, "$IMAGE:$VERSION") {
		t.Error("release.yml names an image by the tag of git")
	}
}

// GitHub and krew ignore a file that is not valid YAML, or say so only after a release.
func TestFilesForGitHubAndKrewAreYAML(t *testing.T) {
	for _, pattern := range []string{".github/*.yml", ".github/*/*.yml", "deploy/krew/*.yaml"} {
		for name, text := range texts(t, pattern) {
			if err := yaml.UnmarshalStrict([]byte(text), &map[string]any{}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func texts(t *testing.T, pattern string) map[string]string {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil || len(names) == 0 {
		t.Fatalf("%s: %d files, %v", pattern, len(names), err)
	}
	all := map[string]string{}
	for _, name := range names {
		all[name] = read(t, name)
	}
	return all
}
