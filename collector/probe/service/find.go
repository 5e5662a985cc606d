package service

import (
	"context"
	"slices"

	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/probe/active"
)

// Findable are the names of the known services that [Find] looks for: those whose place is
// the same on each node. The name service and the API server serve many nodes, each of which
// would ask: who wants that names them.
func Findable() []string { return []string{Kubelet, Runtime, KubeProxy} }

// Find returns those of the known services that answer now as they should, of the names
// given. Each is probed once.
func Find(ctx context.Context, fs hostfs.FS, p *active.Prober, names []string) []Service {
	m := maker{fs: fs, prober: p}
	var found []Service
	for _, s := range Known() {
		if !slices.Contains(names, s.Name) {
			continue
		}
		if o, err := m.make(ctx, &s, nil, nil); err == nil && o.OK {
			found = append(found, s)
		}
	}
	return found
}
