package agent

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kernosis/kernosis/collector/ingest"
	"github.com/kernosis/kernosis/collector/probe/service"
)

// serviceSettings say which services of the node are probed. See docs/services.md.
type serviceSettings struct {
	// Known are names of known services, and serviceAuto; nil: the command's default.
	Known []string `yaml:"known,flow"`
	// Probes are services, or what is different of known ones, without the defaults.
	Probes []service.Service `yaml:"probes"`

	filled bool // Known is the command's default
}

// serviceAuto stands for the known services that are there.
const serviceAuto = "auto"

// defaultServices fills in which known services are probed unless the file says it: in
// the agent those that are there.
func (c *Config) defaultServices() {
	if c.Services.Known == nil && c.isAgent {
		c.Services.Known, c.Services.filled = []string{serviceAuto}, true
	}
	c.services = &services{all: c.configuredServices()}
}

// DropDefaultServices leaves out services that nobody has configured, as "kernosis run" does.
func (c *Config) DropDefaultServices() {
	if c.Services.filled {
		c.Services.Known = nil
	}
}

// configuredServices returns the services that are named, those of mistaken names left out.
func (c *Config) configuredServices() (all []service.Service) {
	for _, k := range service.Known() {
		own := slices.ContainsFunc(c.Services.Probes, func(p service.Service) bool { return p.Name == k.Name })
		if slices.Contains(c.Services.Known, k.Name) && !own {
			all = append(all, k)
		}
	}
	for i := range c.Services.Probes {
		all = append(all, c.Services.Probes[i].Filled())
	}
	return all
}

// serviceError returns a mistake in a field of a service, or with -1 of all of them, with its
// place.
func (c *Config) serviceError(i int, field, format string, args ...any) error {
	at := "services."
	if i >= 0 {
		at = fmt.Sprintf("services.probes[%d].", i)
	}
	return c.origins.Errorf(at+field, format, args...)
}

func (c *Config) checkServices() error {
	var errs []error
	names := []string{serviceAuto}
	for _, k := range service.Known() {
		names = append(names, k.Name)
	}
	for i, name := range c.Services.Known {
		switch {
		case !slices.Contains(names, name):
			errs = append(errs, c.serviceError(-1, "known", "%q is none of %s", name, strings.Join(names, ", ")))
		case slices.Contains(c.Services.Known[:i], name):
			errs = append(errs, c.serviceError(-1, "known", "%s stands twice", name))
		}
	}
	if n := len(c.configuredServices()); n > service.MaxServices {
		errs = append(errs, c.serviceError(-1, "probes", "%d services, at most %d", n, service.MaxServices))
	}
	if slices.Contains(c.Services.Known, service.APIServer) && !c.knowsAPIServer() {
		errs = append(errs, c.serviceError(-1, "known", "%s: no cluster says where it is: it needs an entry in probes with its address", service.APIServer))
	}
	taken := map[string]string{} // conditions
	for _, s := range service.Known() {
		if slices.Contains(c.Services.Known, s.Name) {
			taken[strings.ToLower(s.Condition)] = s.Name
		}
	}
	for i := range c.Services.Probes {
		s := c.Services.Probes[i].Filled()
		for _, e := range s.Check() {
			if s.Name != service.APIServer || e.Field != "address" || s.Address != "" || !c.knowsAPIServer() {
				errs = append(errs, c.serviceError(i, e.Field, "%s", e.Msg))
			}
		}
		if slices.ContainsFunc(c.Services.Probes[:i], func(o service.Service) bool { return o.Name == s.Name }) {
			errs = append(errs, c.serviceError(i, "name", "%s: another service has it", s.Name))
		}
		if s.Condition == "" {
			continue
		}
		if err := ingest.CheckType(s.Condition); err != nil {
			errs = append(errs, c.serviceError(i, "condition", "%w", err))
		}
		if of := taken[strings.ToLower(s.Condition)]; of != "" && of != s.Name {
			errs = append(errs, c.serviceError(i, "condition", "condition %s already belongs to service %s", s.Condition, of))
		}
		taken[strings.ToLower(s.Condition)] = s.Name
	}
	return errors.Join(errs...)
}

// knowsAPIServer reports whether the agent may be reported by the cluster where its API server is.
func (c *Config) knowsAPIServer() bool { return c.isAgent && c.Kube.Exporter }
