package file

import (
	"path/filepath"
	"time"

	"github.com/kernosis/kernosis/collector/hostfs"
)

// maxZone bounds /etc/localtime, which has some 4 KiB.
const maxZone = 1 << 20

// hostZone returns the time zone of the host mounted at root, which its daemons use for times
// without a zone. It returns nil if it is unknown, or if root is this file system.
func hostZone(root string) *time.Location {
	if root == "" || filepath.Clean(root) == "/" {
		return nil
	}
	data, err := hostfs.New(root).ReadFile("/etc/localtime", maxZone)
	if err != nil {
		return nil
	}
	zone, err := time.LoadLocationFromTZData("Local", data)
	if err != nil {
		return nil
	}
	return zone
}
