package kernel

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/kernosis/kernosis/collector/process"
)

// programs returns the programs that this package runs, with their Debian packages.
func programs() map[string]string {
	return map[string]string{
		"apt-get": "apt", "apt-cache": "apt", "apt-config": "apt",
		"dpkg-deb": "dpkg", "depmod": "kmod", "modprobe": "kmod",
	}
}

// FindProgram returns a program's path. It also finds programs in sbin if that is not in the user's
// PATH.
func FindProgram(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	pkg := cmp.Or(programs()[name], map[string]string{"xz": "xz-utils"}[name], name)
	return "", &SetupError{What: name + " is missing", Do: "install the package " + pkg + ", or run make vmtest-setup", Err: err}
}

// findPrograms returns a *SetupError that names all programs of this package that are missing.
func findPrograms() error {
	var missing, packages []string
	var first error
	for _, name := range slices.Sorted(maps.Keys(programs())) {
		if _, err := FindProgram(name); err != nil {
			first = cmp.Or(first, err)
			missing = append(missing, name)
			packages = append(packages, programs()[name])
		}
	}
	if len(missing) == 0 {
		return nil
	}
	slices.Sort(packages)
	return &SetupError{
		What: "missing programs: " + strings.Join(missing, ", "),
		Do:   "install " + strings.Join(slices.Compact(packages), ", "), Err: first,
	}
}

// command is a program to run to completion.
type command struct {
	name  string
	args  []string
	dir   string
	env   []string // in addition to the caller's
	stdin *os.File
	keep  []*os.File // passed to the program: a lock that must stay held while the program runs, even if we die
}

// run returns the program's output. Its error contains the program's error output. A cancelled
// context kills the program and all its children.
func (c command) run(ctx context.Context) ([]byte, error) {
	path, err := FindProgram(c.name)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, c.args...)
	cmd.Dir, cmd.ExtraFiles = c.dir, c.keep
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.Env = append(cmd.Env, c.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second // for pipes that its children still hold
	if c.stdin != nil {
		cmd.Stdin = c.stdin
	}
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	// The program must also end when this process is killed, which cancels no context.
	err = process.StartTied(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%s: %w", c.name, context.Cause(ctx))
		}
		return out.Bytes(), &commandError{name: c.name, complaint: strings.TrimSpace(complaint.String()), err: err}
	}
	return out.Bytes(), nil
}

// commandError reports a program that failed.
type commandError struct {
	name      string
	complaint string // its standard error
	err       error
}

func (e *commandError) Error() string {
	if e.complaint == "" {
		return fmt.Sprintf("%s: %v", e.name, e.err)
	}
	return fmt.Sprintf("%s: %s", e.name, strings.ReplaceAll(e.complaint, "\n", "; "))
}

func (e *commandError) Unwrap() error { return e.err }

// complains reports whether err is a commandError whose error output contains the text.
func complains(err error, text string) bool {
	ce, ok := errors.AsType[*commandError](err)
	return ok && strings.Contains(ce.complaint, text)
}
