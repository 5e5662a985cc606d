// Command generate writes what the chart makes or has from elsewhere: its templates of alerts,
// and deploy/kustomize. It is run in the root of the checkout, by "make generate-deploy".
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kernosis/kernosis/deploy/chart"
)

const folder = "deploy/chart/kernosis"

func main() {
	helm := flag.String("helm", "bin/helm", "path of Helm")
	flag.Parse()
	if err := run(context.Background(), *helm); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, helm string) error {
	own, err := chart.OwnAlerts()
	if err != nil {
		return err
	}
	if err := write(filepath.Join(folder, "files/own-alerts.yaml"), own); err != nil {
		return err
	}
	return kustomize(ctx, helm)
}

func kustomize(ctx context.Context, helm string) error {
	files, err := chart.Kustomize(ctx, chart.Renderer{Helm: helm, Chart: folder})
	if err != nil {
		return err
	}
	const into = "deploy/kustomize"
	// What is not made any more must not stay.
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

func write(path string, text []byte) error {
	return os.WriteFile(path, text, 0o644) //nolint:gosec // manifests, for everybody
}
