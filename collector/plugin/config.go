package plugin

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/process"
)

// The defaults of settings: those of node-problem-detector.
const (
	DefaultInvokeInterval  = 30 * time.Second
	DefaultTimeout         = 5 * time.Second
	DefaultMaxOutputLength = 80
	DefaultConcurrency     = 3

	// DefaultSpread keeps a node's checks from starting all at once, without delaying first results.
	DefaultSpread = 10 * time.Second
	// DefaultMaxProcesses is more than a pipeline of some programs with a few dozen threads each.
	// pids.max counts threads.
	DefaultMaxProcesses = 512

	// maxOutput bounds what is kept of each stream, as in node-problem-detector.
	maxOutput = process.DefaultKeep
)

// Config is a set of checks with their common settings. A zero value means the default.
type Config struct {
	// Name is the name of the set in errors and logs, and of its control group. Mandatory.
	Name string
	// InvokeInterval is how often each check is run.
	InvokeInterval time.Duration
	// Timeout is how long a run may take.
	Timeout time.Duration
	// MaxOutputLength bounds a message, in bytes; not more than 4096 are kept.
	MaxOutputLength int
	// Concurrency is how many of the checks may run at the same time.
	Concurrency int
	// Spread is the period over which the first runs are spread, at most InvokeInterval.
	Spread time.Duration
	// Cgroup is the directory of a control group (v2) in which to create those of the checks, see
	// [process.OwnCgroup]; if empty, they have none.
	Cgroup string
	// MaxProcesses bounds the processes of one check, if it has a control group.
	MaxProcesses int
	// Env is added to the agent's environment, which the programs inherit.
	Env []string
	// Checks are the programs. At least one.
	Checks []Check
}

// Check is one program and how to run it.
type Check struct {
	// Name is the name of the check in results. Unique in the set.
	Name string
	// Path is the program: absolute, or relative to the agent's working directory.
	Path string
	Args []string
	// Timeout is how long a run may take, at most the set's; 0: the set's.
	Timeout time.Duration
	// InvokeInterval is how often it is run; 0: the set's.
	InvokeInterval time.Duration
}

// normal returns the configuration with its defaults, or all its mistakes.
func (c Config) normal() (Config, error) {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Name == "" {
		wrong("name is missing")
	}
	errs = append(errs,
		setDefault("invokeInterval", &c.InvokeInterval, DefaultInvokeInterval),
		setDefault("timeout", &c.Timeout, DefaultTimeout),
		setDefault("spread", &c.Spread, DefaultSpread),
		setDefault("maxOutputLength", &c.MaxOutputLength, DefaultMaxOutputLength),
		setDefault("concurrency", &c.Concurrency, DefaultConcurrency),
		setDefault("maxProcesses", &c.MaxProcesses, DefaultMaxProcesses),
	)
	if len(c.Checks) == 0 {
		wrong("checks: want at least one")
	}
	checks, names := make([]Check, len(c.Checks)), map[string]bool{}
	for i, check := range c.Checks {
		field := fmt.Sprintf("checks[%d]", i)
		switch {
		case check.Name == "":
			wrong("%s.name is missing", field)
		case names[check.Name]:
			wrong("%s.name %q: already used by another check", field, check.Name)
		}
		names[check.Name] = true
		if check.Timeout < 0 || check.Timeout > c.Timeout {
			wrong("%s.timeout %v: want more than 0 and at most the timeout of all, %v", field, check.Timeout, c.Timeout)
		}
		if check.InvokeInterval < 0 {
			wrong("%s.invokeInterval %v: want more than 0", field, check.InvokeInterval)
		}
		if err := executable(check.Path); err != nil {
			wrong("%s.path: %w", field, err)
		}
		checks[i] = check.with(c)
	}
	c.Checks = checks
	if err := errors.Join(errs...); err != nil {
		return Config{}, fmt.Errorf("checks %q: %w", c.Name, err)
	}
	return c, nil
}

// setDefault sets a value that is not set. It returns an error if the value is negative.
func setDefault[N int | time.Duration](field string, value *N, unset N) error {
	if *value < 0 {
		return fmt.Errorf("%s %v: want more than 0", field, *value)
	}
	*value = cmp.Or(*value, unset)
	return nil
}

// with returns the check, with the set's values for missing settings.
func (c Check) with(set Config) Check {
	c.Timeout = cmp.Or(c.Timeout, set.Timeout)
	c.InvokeInterval = cmp.Or(c.InvokeInterval, set.InvokeInterval)
	if abs, err := filepath.Abs(c.Path); err == nil {
		c.Path = abs // exec would search for a bare name in PATH
	}
	return c
}

// executable returns an error if path can't be run.
func executable(path string) error {
	if path == "" {
		return errors.New("missing")
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return &os.PathError{Op: "run", Path: path, Err: errors.New("not a file")}
	}
	// AT_EACCESS instead of access(2): the agent may be set-user-ID or have file capabilities, and
	// the program is run with the effective ones.
	if err := unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS); err != nil {
		return &os.PathError{Op: "run", Path: path, Err: err}
	}
	return nil
}
