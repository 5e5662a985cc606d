package main

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// addBuildInfo has the controller's metrics say its version. The registry is the process',
// so it is to be taken out again.
func addBuildInfo(to prometheus.Registerer) (remove func(), err error) {
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kernosis_controller_build_info", Help: "Always 1; the version is in the label.",
	}, []string{"version"})
	build.WithLabelValues(version).Set(1)
	if err := to.Register(build); err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	return func() { to.Unregister(build) }, nil
}
