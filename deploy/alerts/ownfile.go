package alerts

import (
	"bytes"
	_ "embed"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v4"
)

// ownYAML contains the alerts on Kernosis itself. $agent and $controller are placeholders for the
// jobs.
//
//go:embed own.yaml
var ownYAML []byte

// agentPod replaces the placeholder $pod: a command that prints the agent's pod on an alert's node.
const agentPod = "$(kubectl -n kernosis get pods -l app.kubernetes.io/component=agent --field-selector spec.nodeName={{ $labels.node }} -o name)"

// ownGroups returns the alerts on Kernosis itself.
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

// ownDashboard returns the dashboard for an alert on Kernosis itself.
func ownDashboard(group string, a *Alert) string {
	switch {
	case strings.Contains(a.Annotations[Description], "$labels.node"):
		return dashboardNode
	case group == "kernosis-diagnosis", group == "kernosis-remediation":
		return dashboardDiagnosis
	}
	return dashboardSelf
}

// quoted returns text escaped for use between quotes.
func quoted(text string) string {
	q := fmt.Sprintf("%q", text)
	return q[1 : len(q)-1]
}
