package detector

import (
	"slices"

	"github.com/kernosis/kernosis/collector/event"
)

// Fields by which a rule is about services of the node, and about which.
const (
	probeField  = "event.probe"
	targetField = "event.target"
)

// nameServices finds the services of the node that a rule of probes can be about. Each is
// a source of its own: what is known of one says nothing of another, nor of pods.
func (r *loadedRule) nameServices(c *compiler) {
	probes := func(k event.Kind) bool { return k.Stem() == string(event.Probe) }
	if len(r.when.targets) == 0 || !slices.ContainsFunc(r.Events, probes) {
		return
	}
	names, err := c.possibleServices(r.When, r.when.targets)
	if err != nil {
		r.Errorf("when", "%v", err)
		return
	}
	if len(names) == 0 {
		return
	}
	r.stems = slices.DeleteFunc(r.stems, func(stem string) bool { return stem == string(event.Probe) })
	r.named = append(r.named, newNamed(event.ServiceStem, names))
}

// possibleServices returns the names of the services for which the expression, which
// compares the target with these, is not false already by it; none where it may be true of
// any service, or of a pod's probe.
func (c *compiler) possibleServices(source string, named []literal) ([]string, error) {
	ofKind, err := c.possible(source, kindField, probeField)
	if err != nil {
		return nil, err
	}
	for _, probe := range []string{"startup", "liveness", "readiness"} {
		if any, err := ofKind(string(event.Probe), probe); any || err != nil {
			return nil, err
		}
	}
	possible, err := c.possible(source, kindField, probeField, targetField)
	if err != nil {
		return nil, err
	}
	// No service has an empty name: what may be true of it may be of others.
	if any, err := possible(string(event.Probe), event.ProbeService, ""); any || err != nil {
		return nil, err
	}
	var out []string
	for _, l := range named {
		ok, err := possible(string(event.Probe), event.ProbeService, l.text)
		if err != nil {
			return nil, err
		}
		if ok && !slices.Contains(out, l.text) {
			out = append(out, l.text)
		}
	}
	return out, nil
}
