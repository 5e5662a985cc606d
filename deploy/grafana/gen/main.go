// Command gen writes the dashboards into a folder.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/kernosis/kernosis/deploy/grafana"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("give the folder to write to")
	}
	files, err := grafana.Files()
	if err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(args[0], name), text, 0o644); err != nil { //nolint:gosec // for everybody
			return fmt.Errorf("dashboards: %w", err)
		}
	}
	return nil
}
