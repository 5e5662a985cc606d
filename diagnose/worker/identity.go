package worker

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/kernosis/kernosis/collector/statefile"
)

func takenIn(dir string) string { return filepath.Join(dir, takenDir) }

// identity returns who holds the runs of a folder: the node and a number that is kept
// there, so that an agent that was restarted is the same holder, and another agent of the
// node is not. Where it can't be kept there is one all the same.
func identity(dir, node string) (string, error) {
	path := filepath.Join(dir, "holder")
	raw, err := os.ReadFile(path)
	id, _, _ := strings.Cut(string(raw), "\n") // newer versions may add lines
	if err == nil && len(id) == 16 && strings.Trim(id, "0123456789abcdef") == "" {
		return node + "/" + id, nil
	}
	var random [8]byte
	_, _ = rand.Read(random[:]) // it does not fail
	id = hex.EncodeToString(random[:])
	if err := (statefile.File{Path: path}).Replace([]byte(id + "\n")); err != nil {
		return node + "/" + id, fmt.Errorf("keep identity: %w", err)
	}
	return node + "/" + id, nil
}
