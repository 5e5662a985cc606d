package file

import (
	"os"
	"path/filepath"
	"time"
)

// hostZone returns the time zone of the host that is mounted below root, in which its
// daemons write times that don't say theirs; nil: not known, or root is this file system.
func hostZone(root string) *time.Location {
	if root == "" || filepath.Clean(root) == "/" {
		return nil
	}
	path := filepath.Join(root, "/etc/localtime")
	if link, err := os.Readlink(path); err == nil && filepath.IsAbs(link) {
		path = filepath.Join(root, link) // the link is the host's
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
