package operation

import (
	"github.com/kernosis/kernosis/collector/hostfs"
)

// HostAt returns the machine whose root folder is dir. pods may be nil if they are unknown.
func HostAt(dir string, pods Pods) Host {
	root := hostfs.New(dir)
	return Host{FS: root, Symbols: hostfs.NewSymbols(root), Pods: pods}
}
