package service

import (
	"context"
	"slices"

	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/probe/active"
)

// Findable returns the names of the known services that [Find] looks for: those with the same
// address on each node. DNS and the API server serve many nodes, and every node would query them;
// they must be named explicitly.
func Findable() []string { return []string{Kubelet, Runtime, KubeProxy} }

// Find returns the known services among names that answer correctly now. It probes each of them
// once.
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
