package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/probe/service"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/npd"
	"github.com/kernosis/kernosis/detector/problem"
)

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

// rulesNow reads the rules. It drops discovered services whose condition another rule sets.
func (c *Config) rulesNow() (*detector.RuleSet, *npd.Set, error) {
	rules, set, err := c.rules()
	if err == nil || c.services == nil {
		return rules, set, err
	}
	without := *c
	var found []service.Service
	without.services, found = c.services.configured()
	others, _, othersErr := without.rules()
	if othersErr != nil {
		return nil, nil, err
	}
	dropped := false
	for _, s := range found {
		if alreadySet(others, s.Condition, ServiceRuleName(s.Name), "") != nil {
			c.services.drop(s.Name)
			dropped = true
		}
	}
	if !dropped {
		return nil, nil, err
	}
	return c.rules()
}
