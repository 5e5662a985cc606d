package metrics

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// AddStats registers figures of the node, whose names an administrator has chosen:
// one may be that of a metric of the agent, which is an error and not a panic.
func (m *Metrics) AddStats(c prometheus.Collector) error {
	if err := m.Registry.Register(c); err != nil {
		return fmt.Errorf("system stats: %w", err)
	}
	return nil
}
