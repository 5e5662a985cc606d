package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/kernosis/kernosis/vmtest/kernel"
)

// mutantsDir contains the patches that break a program on purpose. Each starts with the lines
// "Stem: NAME" and "Right: what the code should say".
const mutantsDir = "vmtest/mutants"

type mutant struct {
	name, stem, right string
	patch             string // absolute path
}

func readMutants(root string) ([]mutant, error) {
	paths, err := filepath.Glob(filepath.Join(root, mutantsDir, "*.patch"))
	if err != nil {
		return nil, err
	}
	var all []mutant
	for _, path := range paths {
		m := mutant{name: strings.TrimSuffix(filepath.Base(path), ".patch"), patch: path}
		raw, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		for s := bufio.NewScanner(strings.NewReader(string(raw))); s.Scan() && s.Text() != ""; {
			field, value, _ := strings.Cut(s.Text(), ": ")
			switch field {
			case "Stem":
				m.stem = value
			case "Right":
				m.right = value
			default:
				return nil, fmt.Errorf("%s: %q, want Stem or Right before an empty line", path, s.Text())
			}
		}
		if m.stem == "" || m.right == "" {
			return nil, fmt.Errorf("%s: begins without Stem or Right", path)
		}
		all = append(all, m)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no patches in %s", mutantsDir)
	}
	return all, nil
}

// mutants runs the tests of each broken program and counts the mutants that no test noticed. A stem
// whose tests fail without a mutant proves nothing, so that is an error.
func (c command) mutants(ctx context.Context, k kernel.Kernel) (survived int, err error) {
	w, err := newWorkshop()
	if err != nil {
		return 0, err
	}
	all, err := readMutants(w.root)
	if err != nil {
		return 0, err
	}
	controlled := map[string]bool{}
	for _, m := range all {
		if c.stem != "" && m.stem != c.stem {
			continue
		}
		if !controlled[m.stem] {
			controlled[m.stem] = true
			red, err := w.faults(ctx, m.stem, k)
			if err != nil {
				return survived, err
			}
			if len(red) > 0 {
				return survived, fmt.Errorf("stem %s is red without a mutant: %s", m.stem, strings.Join(red, "; "))
			}
		}
		red, err := w.try(ctx, m, k)
		if err != nil {
			return survived, fmt.Errorf("mutant %s: %w", m.name, err)
		}
		how := "noticed by"
		if len(red) == 0 {
			survived++
			how = "NOT NOTICED"
		}
		fmt.Printf("%-20s %s: %s %s\n", m.name, m.right, how, strings.Join(red, "; "))
	}
	return survived, nil
}

// try builds a copy of the module with a mutant applied, and returns the rows of the table that
// fail.
func (w workshop) try(ctx context.Context, m mutant, k kernel.Kernel) (red []string, err error) {
	dir, err := os.MkdirTemp("", "mutant-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	// Tracked and untracked files, without ignored ones. A tracked file may have been deleted.
	const script = `set -e
git ls-files -z --cached --others --exclude-standard | tar -c --null -T - --ignore-failed-read | tar -x -C "$1"
cd "$1"
git apply "$2"
go generate ./bpf/...
go build -o bin/kernosis ./cmd/kernosis`
	cmd := exec.CommandContext(ctx, "sh", "-c", script, "sh", dir, m.patch)
	cmd.Dir, cmd.Env = w.root, append(os.Environ(), "CGO_ENABLED=0", "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	in := workshop{root: dir, runner: w.runner, dir: filepath.Join(dir, "dist")}
	return in.faults(ctx, m.stem, k)
}

// faults runs the faults of a stem and returns the rows of the table that fail.
func (w workshop) faults(ctx context.Context, stem string, k kernel.Kernel) (red []string, err error) {
	if err := os.MkdirAll(filepath.Join(w.dir, "bin"), 0o755); err != nil {
		return nil, err
	}
	s := suites()[0]
	if err := w.build(ctx, s, k.Arch()); err != nil {
		return nil, err
	}
	out, err := w.do(ctx, job{suite: s, kernel: k, run: s.pattern(stem)})
	if err != nil {
		return nil, err
	}
	if len(out.order) == 0 {
		return nil, fmt.Errorf("no fault of stem %s was run; see %s", stem, out.log)
	}
	for _, row := range out.failures() {
		red = append(red, row.stem+" "+row.fault)
	}
	return red, nil
}
