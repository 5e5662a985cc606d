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
	others := map[string]string{"xz": "xz-utils", "qemu-system-x86_64": "qemu-system-x86", "qemu-system-aarch64": "qemu-system-arm"}
	pkg := cmp.Or(programs()[name], others[name], name)
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

// SetupError reports what this machine lacks, and how to fix it. It is not a test result: no test
// has run.
type SetupError struct {
	What string // what is wrong
	Do   string // how to fix it; may be empty
	Err  error  // the cause, included in What if it adds anything; may be nil
}

func (e *SetupError) Error() string {
	if e.Do == "" {
		return e.What
	}
	return e.What + ": " + e.Do
}

func (e *SetupError) Unwrap() error { return e.Err }

type command struct {
	name string
	args []string
	dir  string
	env  []string   // in addition to the caller's
	keep []*os.File // passed to the program: a lock that must stay held while the program runs, even if we die
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
	cmd.Env = slices.Concat(os.Environ(), []string{"LC_ALL=C"}, c.env)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second // for pipes that its children still hold
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

func complains(err error, text string) bool {
	ce, ok := errors.AsType[*commandError](err)
	return ok && strings.Contains(ce.complaint, text)
}
