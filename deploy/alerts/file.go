package alerts

import (
	"bytes"
	"fmt"

	"go.yaml.in/yaml/v4"
)

// File is a file of Prometheus rules; also the spec of a PrometheusRule.
type File struct {
	Groups []Group `yaml:"groups"`
}

// Group is one of its groups.
type Group struct {
	Name  string  `yaml:"name"`
	Rules []Alert `yaml:"rules"`
}

// Alert is an alerting rule.
type Alert struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for,omitempty"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

const head = `# Made by "kernosis rules alerts" (docs/monitoring.md): make anew, rather than change, it.
`

// Encode writes the file.
func (f *File) Encode() ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(head)
	// A line an expression: what is folded is hard to read and to search.
	d, err := yaml.NewDumper(&b, yaml.WithIndent(2), yaml.WithLineWidth(-1))
	if err != nil {
		return nil, fmt.Errorf("alerts: %w", err)
	}
	if err := d.Dump(f); err != nil {
		return nil, fmt.Errorf("alerts: %w", err)
	}
	if err := d.Close(); err != nil {
		return nil, fmt.Errorf("alerts: %w", err)
	}
	return b.Bytes(), nil
}
