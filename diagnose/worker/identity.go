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

// identity returns the holder name of a folder's runs: the node and a random ID that is stored in
// the folder. So a restarted agent is the same holder, and another agent of the node is not. If the
// ID can't be stored, identity returns one with the error.
func identity(dir, node string) (string, error) {
	path := filepath.Join(dir, "holder")
	raw, err := os.ReadFile(path)
	id, _, _ := strings.Cut(string(raw), "\n") // newer versions may add lines
	if err == nil && len(id) == 16 && strings.Trim(id, "0123456789abcdef") == "" {
		return node + "/" + id, nil
	}
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails
	id = hex.EncodeToString(random[:])
	if err := (statefile.File{Path: path}).Replace([]byte(id + "\n")); err != nil {
		return node + "/" + id, fmt.Errorf("keep identity: %w", err)
	}
	return node + "/" + id, nil
}
