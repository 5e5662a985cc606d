package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"slices"
	"strings"

	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/collector/probe/service"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/npd"
)

// LoadRules returns the shipped rules, overridden by the operator's in dir.
func LoadRules(dir string) (*detector.RuleSet, error) {
	return detector.LoadDir(dir, detector.Shipped())
}

// shippedRules returns the shipped rules. Only rules in files whose name, without .yaml, matches
// one of the patterns are in force.
func (c *Config) shippedRules() (fs.FS, error) {
	names, err := fs.Glob(detector.Shipped(), "*.yaml")
	if err != nil {
		return nil, err
	}
	selected := make(map[string]bool)
	for _, pattern := range c.ShippedRules {
		found := false
		for _, name := range names {
			ok, err := path.Match(pattern, strings.TrimSuffix(name, ".yaml"))
			if err != nil {
				return nil, c.origins.Errorf("shipped-rules", "%q: %w", pattern, err)
			}
			if !ok {
				continue
			}
			found, selected[name] = true, true
		}
		if !found {
			return nil, c.origins.Errorf("shipped-rules", "no file of rules matches %q", pattern)
		}
	}
	return detector.Selection{FS: detector.Shipped(), Selected: func(file string) bool { return selected[file] }}, nil
}

// watchRules reloads rule files when they change, until ctx ends. If one is invalid or can't be
// read it logs the error, and the running rules stay in force.
func (p *parts) watchRules(ctx context.Context) error {
	document.Watch(ctx, p.cfg.RulesDir, p.log, func() {
		if !p.changed() {
			return
		}
		if err := reloadRules(p.agent, p.cfg, p.mutes); err != nil {
			p.log.Error("rules not reloaded; the previous ones stay in force", "error", err)
			return
		}
		p.log.Info("rules reloaded", "dir", p.cfg.RulesDir)
	})
	return nil
}

// changes returns a function that reports whether the rules of a directory, or the reason why they
// can't be read, have changed since its last call, or since now.
func changes(dir string) func() bool {
	last, lastErr := detector.Contents(dir)
	return func() bool {
		now, err := detector.Contents(dir)
		same := now == last && fmt.Sprint(err) == fmt.Sprint(lastErr)
		last, lastErr = now, err
		return !same
	}
}

func reloadRules(a *pipeline, cfg Config, mutes *muteFile) error {
	a.reloading.Lock()
	defer a.reloading.Unlock()
	defer cfg.services.endDropped() // when the rules of services that rulesNow drops are replaced
	next, _, err := cfg.rulesNow()
	if err != nil {
		return err
	}
	if a.problems != nil {
		a.problems.Known(next.Rules())
	}
	a.replace(next)
	a.warnOfLabels(next)
	mutes.replaced(next)
	return nil
}

// rules returns the rules in force. Later layers override earlier ones: the shipped rules, those of
// node-problem-detector's files, those of problem daemons and services, the operator's. The
// returned set has the other settings of node-problem-detector's files.
func (c *Config) rules() (*detector.RuleSet, *npd.Set, error) {
	shipped, err := c.shippedRules()
	if err != nil {
		return nil, nil, err
	}
	reports, err := reportLayer(c.Reports)
	if err != nil {
		return nil, nil, err
	}
	services, err := serviceLayer(c.services.list())
	if err != nil {
		return nil, nil, err
	}
	set, layers := &npd.Set{}, []fs.FS{shipped, reports, services}
	if len(c.npdFiles) > 0 {
		under, err := detector.Load(layers...)
		if err != nil {
			return nil, nil, err
		}
		if set, err = npd.Convert(c.npdFiles, under); err != nil {
			return nil, nil, err
		}
		layers = slices.Insert(layers, 1, set.Layer)
	}
	rules, err := detector.LoadDir(c.RulesDir, layers...)
	if err != nil {
		return nil, nil, err
	}
	set.Warnings = append(set.Warnings, set.Unset(rules)...)
	return rules, set, errors.Join(c.ownConditions(rules), c.ownServiceConditions(rules))
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

// RulesInForce returns the rules of an agent with this configuration.
func (c *Config) RulesInForce() (*detector.RuleSet, error) {
	if c.isAgent {
		if err := c.readNPD(); err != nil {
			return nil, err
		}
	}
	c.rememberServices(slog.New(slog.DiscardHandler))
	set, _, err := c.rulesNow()
	return set, err
}

// AlertRules returns the rules of agents, including those of known services unless another rule
// sets the service's condition.
func (c *Config) AlertRules() (*detector.RuleSet, error) {
	if err := c.readNPD(); err != nil {
		return nil, err
	}
	rules, _, err := c.rules()
	if err != nil {
		return nil, err
	}
	known := slices.DeleteFunc(service.Known(), func(s service.Service) bool {
		return slices.ContainsFunc(rules.Conditions(), func(c detector.ConditionSpec) bool { return strings.EqualFold(c.Type, s.Condition) })
	})
	c.services = &services{all: known}
	rules, _, err = c.rules()
	return rules, err
}

// alreadySet returns an error if a rule other than own sets the condition: otherwise the condition
// could be True for a reason unknown to its owner.
func alreadySet(rules *detector.RuleSet, condition, own, of string) error {
	all := rules.Rules()
	i := slices.IndexFunc(all, func(r *detector.Rule) bool { return strings.EqualFold(r.Condition, condition) && r.Name != own })
	if i < 0 {
		return nil
	}
	return fmt.Errorf("condition %s%s is already set by rule %s (%s:%d)", condition, of, all[i].Name, all[i].File, all[i].Line)
}
