package file

import (
	"os"
	"path/filepath"
	"time"
)

// hostZone returns the time zone of the host mounted at root, which its daemons use for times
// without a zone. It returns nil if it is unknown, or if root is this file system.
func hostZone(root string) *time.Location {
	if root == "" || filepath.Clean(root) == "/" {
		return nil
	}
	path := filepath.Join(root, "/etc/localtime")
	if link, err := os.Readlink(path); err == nil && filepath.IsAbs(link) {
		path = filepath.Join(root, link) // an absolute link is relative to the host's root
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	zone, err := time.LoadLocationFromTZData("Local", data)
	if err != nil {
		return nil
	}
	return zone
}
