package e2e_test

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/kernosis/kernosis/vmtest/agenttest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// Tags of the same program, so that an upgrade is visible.
const (
	tagOne = "e2e-1"
	tagTwo = "e2e-2"
)

// images packs Kernosis like `make image`, for this machine only, and imports it into the node
// under both tags.
func (c *cluster) images(t *testing.T) {
	t.Helper()
	c.image = "kernosis/kernosis"
	pack, program := testenv.BuildProgram(t, "github.com/kernosis/kernosis/deploy/image"), agenttest.Program(t)
	for _, tag := range []string{tagOne, tagTwo} {
		archive := filepath.Join(t.TempDir(), "image.tar")
		out, err := exec.CommandContext(t.Context(), pack, "-name", c.image, "-version", tag, "-source", root(), "-archive", archive, program).CombinedOutput()
		if err != nil {
			t.Fatalf("pack the image: %v\n%s", err, out)
		}
		c.Import(t, archive)
	}
}
