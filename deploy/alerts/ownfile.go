package alerts

import (
	"bytes"
	_ "embed"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v4"
)

// ownYAML has the alerts on Kernosis itself; $agent and $controller stand for the jobs.
//
//go:embed own.yaml
var ownYAML []byte

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
		for j := range f.Groups[i].Rules {
			a := &f.Groups[i].Rules[j]
			a.Expr = jobs.Replace(strings.TrimSpace(a.Expr))
			if page := cfg.runbook("runbooks/" + a.Alert); page != "" {
				a.Annotations["runbook_url"] = page
			}
		}
	}
	return f.Groups, nil
}

// quoted returns text as it stands between quotes.
func quoted(text string) string {
	q := fmt.Sprintf("%q", text)
	return q[1 : len(q)-1]
}
