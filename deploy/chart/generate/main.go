// Command generate writes the generated files of the chart: its README, its alert templates, the
// dashboards, and deploy/kustomize. "make generate-deploy" runs it in the root of the checkout.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kernosis/kernosis/deploy/chart"
	"github.com/kernosis/kernosis/deploy/grafana"
)

const folderOfChart = "deploy/chart/kernosis"

func main() {
	helm := flag.String("helm", "bin/helm", "path of Helm")
	onlyReadme := flag.Bool("readme", false, "write only the chart's README, which does not need Helm")
	flag.Parse()
	err := readme()
	if err == nil && !*onlyReadme {
		err = errors.Join(ownAlerts(), dashboards(), kustomize(context.Background(), *helm))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

// readme writes the values into the README.
func readme() error {
	name := filepath.Join(folderOfChart, "README.md")
	old, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	values, err := os.ReadFile(filepath.Join(folderOfChart, "values.yaml"))
	if err != nil {
		return err
	}
	text, err := chart.Readme(old, values)
	if err != nil {
		return err
	}
	return write(name, text)
}

// ownAlerts writes the alert templates for users' rules.
func ownAlerts() error {
	text, err := chart.OwnAlerts()
	if err != nil {
		return err
	}
	return write(filepath.Join(folderOfChart, "files/own-alerts.yaml"), text)
}

func dashboards() error {
	files, err := grafana.Files()
	if err != nil {
		return err
	}
	for name, text := range files {
		if err := write(filepath.Join(folderOfChart, "files/dashboards", name), text); err != nil {
			return err
		}
	}
	return nil
}

func kustomize(ctx context.Context, helm string) error {
	files, err := chart.Kustomize(ctx, chart.Renderer{Helm: helm, Chart: folderOfChart})
	if err != nil {
		return err
	}
	const into = "deploy/kustomize"
	// Remove files that are no longer generated.
	old, err := filepath.Glob(into + "/*/*.yaml")
	if err != nil {
		return err
	}
	for _, name := range old {
		if err := os.Remove(name); err != nil {
			return err
		}
	}
	for name, text := range files {
		name = filepath.Join(into, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := write(name, text); err != nil {
			return err
		}
	}
	return nil
}

func write(name string, text []byte) error {
	return os.WriteFile(name, text, 0o644) //nolint:gosec // manifests, dashboards and documentation, for everybody
}
