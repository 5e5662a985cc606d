// Command generate writes the generated files of the chart: its README, its alert templates, the
// dashboards, and deploy/kustomize. "make generate-deploy" runs it in the root of the checkout.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kernosis/kernosis/deploy/chart"
	"github.com/kernosis/kernosis/deploy/monitoring"
)

const (
	folderOfChart = "deploy/chart/kernosis"
	readme        = folderOfChart + "/README.md"
	kustomize     = "deploy/kustomize"
)

func main() {
	helm := flag.String("helm", "bin/helm", "path of Helm")
	onlyReadme := flag.Bool("readme", false, "write only the chart's README, which does not need Helm")
	flag.Parse()
	if err := generate(context.Background(), *helm, *onlyReadme); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func generate(ctx context.Context, helm string, onlyReadme bool) error {
	old, err := os.ReadFile(readme)
	if err != nil {
		return err
	}
	values, err := os.ReadFile(folderOfChart + "/values.yaml")
	if err != nil {
		return err
	}
	text, err := chart.Readme(old, values)
	if err != nil {
		return err
	}
	if err := write("", map[string][]byte{readme: text}); err != nil || onlyReadme {
		return err
	}
	if text, err = monitoring.AlertTemplates(); err != nil {
		return err
	}
	dashboards, err := monitoring.Dashboards()
	if err != nil {
		return err
	}
	manifests, err := chart.Kustomize(ctx, chart.Renderer{Helm: helm, Chart: folderOfChart})
	if err != nil {
		return err
	}
	// Remove files that are no longer generated.
	there, err := filepath.Glob(kustomize + "/*/*.yaml")
	if err != nil {
		return err
	}
	for _, name := range there {
		if err := os.Remove(name); err != nil {
			return err
		}
	}
	if err := write(folderOfChart+"/files", map[string][]byte{"own-alerts.yaml": text}); err != nil {
		return err
	}
	if err := write(folderOfChart+"/files/dashboards", dashboards); err != nil {
		return err
	}
	return write(kustomize, manifests)
}

func write(dir string, files map[string][]byte) error {
	for name, text := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, text, 0o644); err != nil { //nolint:gosec // manifests, dashboards and documentation, for everybody
			return err
		}
	}
	return nil
}
