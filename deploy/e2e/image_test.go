package e2e_test

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/kernosis/kernosis/vmtest/agenttest"
	"github.com/kernosis/kernosis/vmtest/testprogram"
)

// Tags of one and the same program: an upgrade that can be distinguished.
const (
	tagOne = "e2e-1"
	tagTwo = "e2e-2"
)

// images packs Kernosis as `make image` does, for this machine alone, and has the node know
// it under both tags.
func (c *cluster) images(t *testing.T) {
	t.Helper()
	c.image = "kernosis/kernosis"
	pack, program := testprogram.Build(t, "github.com/kernosis/kernosis/deploy/image"), agenttest.Program(t)
	for _, tag := range []string{tagOne, tagTwo} {
		archive := filepath.Join(t.TempDir(), "image.tar")
		out, err := exec.CommandContext(t.Context(), pack, "-name", c.image, "-version", tag, "-source", root(), "-archive", archive, program).CombinedOutput()
		if err != nil {
			t.Fatalf("pack the image: %v\n%s", err, out)
		}
		c.Import(t, archive)
	}
}
