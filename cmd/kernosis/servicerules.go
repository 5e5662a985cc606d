package main

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing/fstest"

	"go.yaml.in/yaml/v4"

	"github.com/kernosis/kernosis/collector/probe/service"
	"github.com/kernosis/kernosis/detector"
)

// serviceLayer makes rules of services: a condition that is True once as many probes have
// failed in a row as count, until as many succeed.
func serviceLayer(all []service.Service) (fs.FS, error) {
	layer := fstest.MapFS{} // a map as a file system; it has nothing of a test
	if len(all) == 0 {
		return layer, nil
	}
	type healthy struct {
		HealthyReason  string `yaml:"healthyReason"`
		HealthyMessage string `yaml:"healthyMessage"`
	}
	doc := struct {
		APIVersion string             `yaml:"apiVersion"`
		Conditions map[string]healthy `yaml:"conditions"`
		Rules      []reportRule       `yaml:"rules"`
	}{APIVersion: detector.APIVersion, Conditions: map[string]healthy{}}
	for _, s := range all {
		doc.Conditions[s.Condition] = healthy{s.HealthyReason, s.HealthyMessage}
		// Names are letters, digits and dashes: nothing to escape.
		own := fmt.Sprintf("event.probe == %q && event.target == %q", "service", s.Name)
		doc.Rules = append(doc.Rules, reportRule{
			Name: serviceRuleName(s.Name), Events: []string{"probe"}, Condition: s.Condition, Reason: s.Condition, Severity: s.Severity,
			When:      own + " && event.failures >= event.threshold",
			Message:   "${event.target}: ${event.cause} (${event.verdict}, ${event.threshold} times in a row)",
			ClearWhen: own + ` && event.kind == "probe.recovered"`,
		})
	}
	data, err := yaml.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("rules of services: %w", err)
	}
	layer["services.yaml"] = &fstest.MapFile{Data: data, Mode: 0o444}
	return layer, nil
}

func serviceRuleName(name string) string { return "service-" + name }

// ownServiceConditions refuses rules that set the condition of a service.
func (c *config) ownServiceConditions(rules *detector.RuleSet) error {
	var errs []error
	for _, s := range c.services.list() {
		all := rules.Rules()
		k := slices.IndexFunc(all, func(r *detector.Rule) bool {
			return strings.EqualFold(r.Condition, s.Condition) && r.Name != serviceRuleName(s.Name)
		})
		if k < 0 {
			continue
		}
		err := fmt.Errorf("condition %s of service %s is set by rule %s (%s:%d) already", s.Condition, s.Name, all[k].Name, all[k].File, all[k].Line)
		i := slices.IndexFunc(c.Services.Probes, func(p serviceConfig) bool { return p.Name == s.Name })
		errs = append(errs, c.serviceError(i, map[bool]string{true: "condition", false: "known"}[i >= 0], err))
	}
	return errors.Join(errs...)
}
