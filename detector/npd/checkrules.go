package npd

import (
	"fmt"

	"github.com/kernosis/kernosis/collector/event"
)

// checkMonitor makes rules of the results of check programs: events of kind
// check, whose event.check names the program. Only what a program reports as a
// problem is one: a program without an answer (exit code 2, timeout) makes its
// conditions Unknown, by the event's source.
func (c *converter) checkMonitor(in *CheckMonitor) {
	c.register(in.Conditions)
	m := *in
	m.Rules = make([]CheckRule, len(in.Rules))
	checks := make(map[string]string) // name by what is run
	for i, r := range in.Rules {
		out := c.rule(&r.Rule)
		key := fmt.Sprintf("%q %q %v %v", r.Path, r.Args, r.Timeout, r.InvokeInterval)
		if checks[key] == "" {
			checks[key] = out.Name
		}
		r.Check = checks[key]
		m.Rules[i] = r
		// Names are letters, digits and dashes: nothing to escape.
		out.Events = []event.Kind{event.Check}
		out.When = fmt.Sprintf(`event.check == "%s" && event.status == "problem"`, r.Check)
		out.ClearWhen = fmt.Sprintf(`event.check == "%s" && event.status == "ok"`, r.Check)
		out.Message = "${event.message}"
	}
	c.set.Checks = append(c.set.Checks, &m)
}
