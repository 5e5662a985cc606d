package npd

import (
	"fmt"

	"github.com/kernosis/kernosis/collector/event"
)

// checkMonitor creates rules for the results of check programs: events of kind
// check, whose event.check names the program. Only the status "problem" is a problem. A
// program without a result (exit code 2, timeout) makes its conditions Unknown,
// because it is its own source.
func (c *converter) checkMonitor(in *CheckMonitor) {
	c.register(in.Conditions)
	m := *in
	m.Rules = make([]CheckRule, len(in.Rules))
	checks := make(map[string]string) // check name by program and settings
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
