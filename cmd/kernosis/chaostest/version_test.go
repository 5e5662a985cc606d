package chaostest_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/vmtest/testenv"
)

// earlier returns the path of the agent of an earlier commit: by default, of the one that began the changelog's
// latest release. It returns "" where this is no clone with that commit.
func earlier(t *testing.T, commit string) string {
	t.Helper()
	root := testenv.Checkout(t)
	path, err := buildEarlier(root, commit)
	if err != nil {
		t.Logf("no upgrades: %v", err)
	}
	return path
}

func buildEarlier(root, commit string) (path string, err error) {
	if commit == "" {
		if commit, err = released(root); err != nil {
			return "", err
		}
	}
	if commit, err = run(root, "git", "rev-parse", "--short", commit+"^{commit}"); err != nil {
		return "", err
	}
	path = filepath.Join(root, "bin", "chaos", "kernosis-"+commit)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	tree, err := os.MkdirTemp("", "kernosis-chaos-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tree)
	if _, err := run(root, "git", "worktree", "add", "--detach", tree, commit); err != nil {
		return "", err
	}
	defer run(root, "git", "worktree", "remove", "--force", tree) //nolint:errcheck // the next prune removes it
	_, err = run(tree, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X main.version=earlier", "-o", path, "./cmd/kernosis")
	return path, err
}

// released returns the commit that wrote the heading of the changelog's latest release.
func released(root string) (commit string, err error) {
	text, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "## ") && line != "## Unreleased" {
			commits, err := run(root, "git", "log", "--format=%H", "-S"+line, "--", "CHANGELOG.md")
			all := strings.Fields(commits)
			if err == nil && len(all) > 0 {
				return all[len(all)-1], nil
			}
			return "", fmt.Errorf("no commit with %q: %w", line, err)
		}
	}
	return "", fmt.Errorf("no release in CHANGELOG.md")
}

func run(dir, name string, args ...string) (out string, err error) {
	c := exec.Command(name, args...)
	c.Dir = dir
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	text, err := c.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", c, err, text)
	}
	return strings.TrimSpace(string(text)), nil
}
