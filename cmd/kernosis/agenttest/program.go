package agenttest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// Program is kernosis, built once for the tests of a package: a variable of it, which TestMain
// runs them by.
type Program struct {
	mu   sync.Mutex
	dir  string
	path string
	err  error
}

// Run has tests run, and removes what was built for them. It returns what they return.
func (p *Program) Run(tests func() int) int {
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.dir != "" {
			_ = os.RemoveAll(p.dir)
		}
	}()
	return tests()
}

// Path returns that of the program. The first test that asks for it waits for the build.
func (p *Program) Path(tb testing.TB) string {
	tb.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.path == "" && p.err == nil {
		p.path, p.err = p.build()
	}
	if p.err != nil {
		tb.Fatal(p.err)
	}
	return p.path
}

// build makes it as the product is: with cgo, for one, no rights could be given up.
func (p *Program) build() (path string, err error) {
	//nolint:usetesting // it outlives the test that builds it
	if p.dir, err = os.MkdirTemp("", "kernosis-test-"); err != nil {
		return "", err
	}
	path = filepath.Join(p.dir, "kernosis")
	cmd := exec.Command("go", "build", "-tags", "grpcnotrace", "-o", path, "github.com/kernosis/kernosis/cmd/kernosis")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build kernosis: %w\n%s", err, out)
	}
	return path, nil
}
