package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/ingest"
	"github.com/kernosis/kernosis/collector/probe/service"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
)

// serviceSettings configure which services of the node are probed. See docs/services.md.
type serviceSettings struct {
	// Known are names of known services, and serviceAuto; nil: the command's default.
	Known []string `yaml:"known,flow"`
	// Probes are further services, or overrides of known ones, without the defaults.
	Probes []service.Service `yaml:"probes"`
}

// serviceAuto means all known services that are found on the node.
const serviceAuto = "auto"

// defaultServices sets which known services are probed if the file does not say: in "kernosis
// agent", those that are found on the node.
func (c *Config) defaultServices() {
	if c.Services.Known == nil && c.isAgent {
		c.Services.Known = []string{serviceAuto}
	}
	c.services = &services{all: c.configuredServices()}
}

// configuredServices returns the services that the file names. It omits unknown names.
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

// serviceError returns an error in a field of service i, or with -1 in the section services, with
// its file and line.
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
			errs = append(errs, c.serviceError(-1, "known", "%q: want one of %s", name, strings.Join(names, ", ")))
		case slices.Contains(c.Services.Known[:i], name):
			errs = append(errs, c.serviceError(-1, "known", "%s is listed twice", name))
		}
	}
	if n := len(c.configuredServices()); n > service.MaxServices {
		errs = append(errs, c.serviceError(-1, "probes", "%d services, want at most %d", n, service.MaxServices))
	}
	if slices.Contains(c.Services.Known, service.APIServer) && !c.knowsAPIServer() {
		errs = append(errs, c.serviceError(-1, "known", "%s: no cluster is configured: add it to probes with its address", service.APIServer))
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
			errs = append(errs, c.serviceError(i, "name", "%s is already used by another service", s.Name))
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

// knowsAPIServer reports whether the agent can get the API server's address from its cluster
// configuration.
func (c *Config) knowsAPIServer() bool { return c.isAgent && c.Kube.Exporter }

// serviceLayer makes a rule for each service. Its condition becomes True when the threshold of
// consecutive failed probes is reached, and ends when the probe has recovered.
func serviceLayer(all []service.Service) (fs.FS, error) {
	file := detector.RuleFile{Conditions: map[string]detector.ConditionSpec{}}
	for _, s := range all {
		file.Conditions[s.Condition] = detector.ConditionSpec{HealthyReason: s.HealthyReason, HealthyMessage: s.HealthyMessage}
		// Names are letters, digits and dashes: nothing to escape.
		own := fmt.Sprintf("event.probe == %q && event.target == %q", "service", s.Name)
		file.Rules = append(file.Rules, &detector.Rule{
			Name: ServiceRuleName(s.Name), Events: []event.Kind{event.Probe}, Condition: s.Condition, Reason: s.Condition, Severity: problem.Severity(s.Severity),
			When:      own + " && event.failures >= event.threshold",
			Message:   "${event.target}: ${event.cause} (${event.verdict}, ${event.threshold} times in a row)",
			ClearWhen: own + ` && event.kind == "probe.recovered"`,
		})
	}
	return file.Layer("services.yaml")
}

// ServiceRuleName returns the name of a service's rule.
func ServiceRuleName(name string) string { return "service-" + name }

// ownServiceConditions refuses rules that set the condition of a service.
func (c *Config) ownServiceConditions(rules *detector.RuleSet) error {
	var errs []error
	for _, s := range c.services.list() {
		err := alreadySet(rules, s.Condition, ServiceRuleName(s.Name), " of service "+s.Name)
		if err == nil {
			continue
		}
		i := slices.IndexFunc(c.Services.Probes, func(p service.Service) bool { return p.Name == s.Name })
		errs = append(errs, c.serviceError(i, map[bool]string{true: "condition", false: "known"}[i >= 0], "%w", err))
	}
	return errors.Join(errs...)
}
