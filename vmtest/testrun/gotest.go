package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// raceFile is a test file of packages in which the race detector makes a difference, for example in
// the number of allocations. It has the build constraint race. plainTests matches the tests that
// skip themselves, or most of their cases, under the race detector: tests of allocations, and tests
// with one goroutine at a time that take many times as long with it.
const (
	raceFile   = "race_test.go"
	plainTests = "Alloc|ForgedLines|RandomRuns"
)

// goPackage is what go list reports of a package.
type goPackage struct {
	ImportPath, Dir                                    string
	GoFiles, TestGoFiles, XTestGoFiles, IgnoredGoFiles []string

	race        bool // has goroutines, and runs under the race detector
	holdsKernel bool // see kernel
}

// kernel reports whether tests of the package need the kernel to themselves.
func (p goPackage) kernel() bool { return p.holdsKernel }

func list(ctx context.Context, patterns []string) (all []goPackage, err error) {
	const fields = "-json=ImportPath,Dir,GoFiles,TestGoFiles,XTestGoFiles,IgnoredGoFiles"
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", fields}, patterns...)...)
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, strings.TrimSpace(complaints.String()))
	}
	for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
		var p goPackage
		if err := dec.Decode(&p); err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		if err := p.inspect(); err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// filter returns the packages of which ok returns true.
func filter(all []goPackage, ok func(goPackage) bool) []goPackage {
	return slices.DeleteFunc(slices.Clone(all), func(p goPackage) bool { return !ok(p) })
}

// inspect reads the source of the package.
//
// It sets race if the package or its tests start goroutines, or the package imports something meant
// for goroutines. In other packages the race detector finds nothing, and the tests take ten times as
// long. An import only in a test, such as net/http for a request, does not count.
//
// It sets holdsKernel if a test calls testenv.HoldKernel or HoldKernelForProcess.
func (p *goPackage) inspect() error {
	tests := slices.Concat(p.TestGoFiles, p.XTestGoFiles)
	for _, name := range slices.Concat(p.GoFiles, tests) {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		test := slices.Contains(tests, name)
		p.race = p.race || !test && slices.ContainsFunc(file.Imports, func(i *ast.ImportSpec) bool {
			path := strings.Trim(i.Path.Value, `"`)
			return path == "sync" || strings.HasPrefix(path, "sync/") || strings.HasPrefix(path, "net/http")
		})
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				p.race = true
			case *ast.SelectorExpr: // sync.WaitGroup, errgroup.Group, testing.T, testing.B
				p.race = p.race || slices.Contains([]string{"Go", "Parallel", "RunParallel"}, n.Sel.Name)
				of, ok := n.X.(*ast.Ident)
				p.holdsKernel = p.holdsKernel || test && ok && of.Name == "testenv" && strings.HasPrefix(n.Sel.Name, "HoldKernel")
			}
			return true
		})
	}
	return nil
}

// patience is how long test processes may take to clean up after an interrupt.
const patience = 20 * time.Second

// goTest runs go test once, with the given niceness. A failed test is not an error; it goes into
// the report, and so does the CPU time of the packages to sample.
func goTest(ctx context.Context, report *report, args call, nice int, env []string, stderr io.Writer, sampled []goPackage) error {
	cmd := exec.CommandContext(ctx, "nice", append([]string{"-n", strconv.Itoa(nice), "go", "test", "-json"}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	if slices.Contains(args, "-race") {
		cmd.Env = append(cmd.Env, "CGO_ENABLED=1")
	}
	cmd.Stderr = stderr
	// go does not forward signals to the tests, so signal the whole process group.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = patience
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	var sampler *sampler
	if sampled != nil {
		sampler = startSampler(cmd.Process.Pid, sampled)
	}
	readErr := report.read(out)
	waitErr := cmd.Wait()
	if sampler != nil {
		report.add(sampler.stop())
	}
	if exit := new(exec.ExitError); waitErr != nil && !errors.As(waitErr, &exit) {
		return waitErr
	}
	if readErr != nil {
		return fmt.Errorf("read the output of go test: %w", readErr)
	}
	if waitErr != nil {
		report.failedRun()
	}
	return nil
}
