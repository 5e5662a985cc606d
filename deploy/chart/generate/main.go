// Command generate writes deploy/kustomize anew. It is run in the root of the checkout, by
// "make generate-deploy".
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kernosis/kernosis/deploy/chart"
)

func main() {
	helm := flag.String("helm", "bin/helm", "path of Helm")
	flag.Parse()
	if err := run(context.Background(), *helm); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, helm string) error {
	files, err := chart.Kustomize(ctx, chart.Renderer{Helm: helm, Chart: "deploy/chart/kernosis"})
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
		if err := os.WriteFile(name, text, 0o644); err != nil { //nolint:gosec // manifests, for everybody
			return err
		}
	}
	return nil
}
