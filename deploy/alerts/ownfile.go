package alerts

import (
	"bytes"
	_ "embed"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v4"
)

// ownYAML has the alerts on Kernosis itself; $agent and $controller stand
// for the jobs.
//
//go:embed own.yaml
var ownYAML []byte

// agentPod is a command that prints the agent's pod on the node of an alert; $pod stands for it.
const agentPod = "$(kubectl -n kernosis get pods -l app.kubernetes.io/component=agent --field-selector spec.nodeName={{ $labels.node }} -o name)"

// ownGroups returns them.
func ownGroups(cfg Config) ([]Group, error) {
	var f File
	dec := yaml.NewDecoder(bytes.NewReader(ownYAML))
	dec.KnownFields(true)
	if err := dec.Decode(&f); err != nil {
		return nil, fmt.Errorf("own.yaml: %w", err)
	}
	jobs := strings.NewReplacer("$agent", quoted(cfg.AgentJob), "$controller", quoted(cfg.ControllerJob))
	for i := range f.Groups {
		g := &f.Groups[i]
		for j := range g.Rules {
			a := &g.Rules[j]
			a.Expr = jobs.Replace(strings.TrimSpace(a.Expr))
			a.Labels[AppLabel] = App
			a.Annotations[Command] = strings.ReplaceAll(a.Annotations[Command], "$pod", agentPod)
			cfg.linked(a.Annotations, cfg.runbook("runbooks/"+a.Alert), ownDashboard(g.Name, a))
		}
	}
	return f.Groups, nil
}

// ownDashboard is the dashboard that shows what an alert on Kernosis itself is about.
func ownDashboard(group string, a *Alert) string {
	switch {
	case strings.Contains(a.Annotations[Description], "$labels.node"):
		return dashboardNode
	case group == "kernosis-diagnosis", group == "kernosis-remediation":
		return dashboardDiagnosis
	}
	return dashboardSelf
}

// quoted returns text as it stands between quotes.
func quoted(text string) string {
	q := fmt.Sprintf("%q", text)
	return q[1 : len(q)-1]
}
