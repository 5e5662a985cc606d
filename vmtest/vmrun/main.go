// Command vmrun runs a test binary on another kernel, in a virtual machine:
//
//	CGO_ENABLED=0 go test -exec "$PWD/bin/vmrun -kernel 6.1" ./bpf
//
// vm.yaml describes what the machine contains besides the binary: the one in the working directory,
// or vmtest/vm.yaml of the enclosing module.
//
// The exit code is the program's. It is also 2 if no machine could be started, 124 if the program
// did not end in time, and 125 if the machine died (a kernel panic).
//
// The same executable is the machine's first process.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/vmtest/kernel"
	"github.com/kernosis/kernosis/vmtest/machine"
)

// Exit codes besides the program's own.
const (
	exitSetup   = 2
	exitTimeout = 124
	exitDied    = 125
)

func main() {
	if os.Getpid() == 1 {
		machine.Init()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	code, err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintf(os.Stderr, "vmrun: %v\n", err)
	}
	os.Exit(code)
}

type options struct {
	kernel, cgroup string
	timeout        time.Duration
	load, files    []string
	cpus           int    // 0 for the value in vm.yaml
	memory         string // empty for the value in vm.yaml
	console        bool
	args           []string
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("vmrun", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {
		fmt.Fprintln(stderr, "usage: vmrun -kernel NAME [flags] BINARY [ARGUMENT...]")
		f.PrintDefaults()
	}
	f.StringVar(&o.kernel, "kernel", "", "`name` of a fetched kernel, or the first numbers of its release")
	f.StringVar(&o.cgroup, "cgroup", machine.CgroupV2, "`version` of the control groups: v1 or v2")
	f.DurationVar(&o.timeout, "timeout", 0, "for the whole machine (default: the binary's -test.timeout and two minutes)")
	f.IntVar(&o.cpus, "cpus", 0, "CPUs of the machine, up to 64 (default: as in the machine's file)")
	f.StringVar(&o.memory, "memory", "", "`size` of the machine's memory, such as 3GiB (default: as in the machine's file)")
	f.Func("file", "`path` of a file to pack besides those of vm.yaml, at the same path; may be repeated", func(path string) (err error) {
		path, err = filepath.Abs(path)
		o.files = append(o.files, path)
		return err
	})
	f.Func("load", "`module` to load at start besides those of vm.yaml, and its parameters; may be repeated", func(m string) error {
		if strings.TrimSpace(m) == "" {
			return errors.New("is empty")
		}
		o.load = append(o.load, m)
		return nil
	})
	f.BoolVar(&o.console, "console", false, "show the kernel's console at the end")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	o.args = f.Args()
	switch {
	case o.kernel == "":
		return o, errors.New("-kernel is missing")
	case len(o.args) == 0:
		return o, errors.New("no program to run")
	case o.cgroup != machine.CgroupV1 && o.cgroup != machine.CgroupV2:
		return o, fmt.Errorf("-cgroup %q, want %s or %s", o.cgroup, machine.CgroupV1, machine.CgroupV2)
	}
	return o, o.checkTestFlags()
}

// checkTestFlags rejects test flags that write a file, because it would be lost with the machine.
func (o *options) checkTestFlags() error {
	limit := 10 * time.Minute
	for i, a := range o.args {
		name, value, ok := strings.Cut(strings.TrimLeft(a, "-"), "=")
		if !ok && i+1 < len(o.args) {
			value = o.args[i+1]
		}
		switch name {
		case "test.coverprofile", "test.cpuprofile", "test.memprofile", "test.blockprofile", "test.mutexprofile", "test.trace", "test.gocoverdir":
			return fmt.Errorf("-%s: files of the machine do not leave it", name)
		case "test.timeout":
			d, err := time.ParseDuration(value)
			if err != nil {
				return fmt.Errorf("-test.timeout: %w", err)
			}
			limit = d
		}
	}
	if o.timeout == 0 {
		o.timeout = limit + 2*time.Minute
		if limit == 0 {
			o.timeout = time.Hour
		}
	}
	return nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (int, error) {
	o, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0, nil
	} else if err != nil {
		return exitSetup, err
	}
	spec, err := o.spec(ctx)
	if err != nil {
		return exitSetup, err
	}
	spec.Output = stdout
	out, err := spec.Run(ctx)
	if err != nil {
		return exitSetup, err
	}
	return explain(out, spec, o.console, stderr)
}

func (o options) spec(ctx context.Context) (machine.Spec, error) {
	cacheDir, err := kernel.CacheDir()
	if err != nil {
		return machine.Spec{}, err
	}
	image, err := kernel.Open(cacheDir, o.kernel)
	if err != nil {
		return machine.Spec{}, err
	}
	dir, err := os.Getwd()
	if err != nil {
		return machine.Spec{}, err
	}
	path, err := findConfig(dir)
	if err != nil {
		return machine.Spec{}, err
	}
	config, err := machine.LoadConfig(path)
	if err != nil {
		return machine.Spec{}, err
	}
	config.Load = append(config.Load, o.load...)
	config.Files = append(config.Files, o.files...)
	if o.cpus > 0 {
		config.CPUs = o.cpus
	}
	if o.memory != "" {
		config.Memory = o.memory
	}
	if err := config.Check(); err != nil {
		return machine.Spec{}, err
	}
	binary, err := filepath.Abs(o.args[0])
	if err != nil {
		return machine.Spec{}, err
	}
	first, err := os.Executable()
	if err != nil {
		return machine.Spec{}, err
	}
	if image.Arch() != runtime.GOARCH {
		first += "-" + image.Arch()
	}
	s := machine.Spec{
		Kernel: image, Config: config, Init: first, Cgroup: o.cgroup,
		Args: append([]string{binary}, o.args[1:]...), Env: environment(os.Environ()), Dir: dir, Timeout: o.timeout,
	}
	s.Accel, err = machine.FindAccel(ctx, s, cacheDir)
	return s, err
}

// findConfig returns the vm.yaml of a folder, or of the enclosing module.
func findConfig(dir string) (string, error) {
	paths := []string{filepath.Join(dir, "vm.yaml")}
	for d, last := dir, ""; d != last; d, last = filepath.Dir(d), d {
		if _, err := os.Stat(filepath.Join(d, "go.mod")); err == nil {
			paths = append(paths, filepath.Join(d, "vmtest", "vm.yaml"))
		}
	}
	for _, path := range paths {
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("no vm.yaml in %s and no vmtest/vm.yaml in its module", dir)
}

// environment returns the program's environment: the variables for Go and Kernosis, and none that
// are specific to this host.
func environment(host []string) []string {
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "TMPDIR=/tmp"}
	for _, e := range host {
		name, _, _ := strings.Cut(e, "=")
		if slices.Contains([]string{"GODEBUG", "GOTRACEBACK", "GOMAXPROCS", "GORACE"}, name) || strings.HasPrefix(name, "KERNOSIS_") {
			env = append(env, e)
		}
	}
	return env
}

// explain turns an outcome into an exit code and, unless the program ended by itself, prints an
// explanation.
func explain(out machine.Outcome, s machine.Spec, console bool, stderr io.Writer) (int, error) {
	if console || out.Ending != machine.Finished {
		fmt.Fprintf(stderr, "vmrun: the last lines of the console of %s:\n%s\n", s.Kernel.Release, out.Console)
	}
	took := out.Took.Round(100 * time.Millisecond)
	switch {
	case out.Ending == machine.TimedOut:
		return exitTimeout, fmt.Errorf("timed out: the machine (%s, %s) was still running after %s", s.Kernel.Release, s.Accel, took)
	case out.Ending == machine.Died:
		return exitDied, fmt.Errorf("the machine (%s, %s) died after %s: %s", s.Kernel.Release, s.Accel, took, cmp.Or(out.Reason, "it ended without a word"))
	case out.Verdict.Error != "":
		return exitSetup, fmt.Errorf("the machine (%s) could not run the program: %s", s.Kernel.Release, out.Verdict.Error)
	case out.Verdict.Signal != 0:
		return 128 + out.Verdict.Signal, fmt.Errorf("the program was ended by signal %d (%s)", out.Verdict.Signal, unix.SignalName(unix.Signal(out.Verdict.Signal)))
	default:
		fmt.Fprintf(stderr, "vmrun: %s, %s, %s\n", s.Kernel.Release, s.Accel, took)
		return out.Verdict.Exit, nil
	}
}
