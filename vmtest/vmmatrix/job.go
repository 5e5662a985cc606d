package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/kernosis/kernosis/vmtest/kernel"
)

// A job is a suite to run on a kernel, in one machine.
type job struct {
	suite  suite
	kernel kernel.Kernel
	run    string // -test.run

	release string // release of the kernel's image
}

// head returns the first line of a job's log, which identifies the job.
func (j job) head() string {
	return fmt.Sprintf("vmmatrix: %s on %s, -test.run=%q\n", j.suite.name, j.release, j.run)
}

// limits returns the timeouts of the machine and of its tests; the latter is shorter, so that a
// hung test prints its stacks. The faults take 7 minutes under emulation, and 12 on a busy host.
// Another architecture is always emulated: half of the faults took 11 minutes on two shared cores.
func (j job) limits() (machine, tests time.Duration) {
	tests = 25 * time.Minute
	if j.kernel.Arch() != runtime.GOARCH {
		tests *= 2
	}
	return tests + 2*time.Minute, tests
}

// workshop holds what jobs share.
type workshop struct {
	root   string // root of the module
	runner string // the vmrun executable
	dir    string // folder of test binaries and logs
	server string // the folder of etcd and kube-apiserver; empty if no suite needs them
}

// programsEnv makes the tests use these programs instead of building them.
const programsEnv = "KERNOSIS_KUBE_PROGRAMS"

// serverMemory is the memory of a machine that also runs etcd and kube-apiserver. They add 330 MB
// to its initramfs, of which two copies exist while it is unpacked.
const serverMemory = "2GiB"

// findServer returns the folder of etcd and kube-apiserver, which it builds if needed.
func (w workshop) findServer(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "run", "./vmtest/testrun", "build", "server")
	cmd.Dir, cmd.Stderr = w.root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("build etcd and kube-apiserver: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

func (w workshop) binary(s suite, arch string) string {
	return filepath.Join(w.dir, "bin", strings.ReplaceAll(s.pkg, "/", "-")+"."+arch+".test")
}

// build compiles a suite's test binary, statically, so that it runs on any system of its
// architecture.
func (w workshop) build(ctx context.Context, s suite, arch string) error {
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-o", w.binary(s, arch), "./"+s.pkg)
	cmd.Dir = w.root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+arch)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the tests of %s: %w\n%s", s.pkg, err, out)
	}
	return nil
}

type outcome struct {
	job
	*results
	took time.Duration
	log  string // file
}

func (w workshop) log(j job) string {
	return filepath.Join(w.dir, j.kernel.Name, strings.ReplaceAll(j.suite.name, " ", "-")+".log")
}

// read returns the outcome recorded in the job's log. It has no results if there is no log, or if
// the log is of another kernel or of other tests.
func (w workshop) read(ctx context.Context, j job) (outcome, error) {
	out := outcome{job: j, log: w.log(j)}
	log, err := os.ReadFile(out.log)
	if errors.Is(err, os.ErrNotExist) {
		return out, nil
	} else if err != nil {
		return out, err
	}
	text, ours := bytes.CutPrefix(log, []byte(j.head()))
	if !ours {
		return out, nil
	}
	convert := exec.CommandContext(ctx, "go", "tool", "test2json")
	convert.Dir, convert.Stdin = w.root, bytes.NewReader(text)
	events, err := convert.Output()
	if err != nil {
		return out, fmt.Errorf("%s: %w", out.log, err)
	}
	r := newReader(j.suite, io.Discard)
	if err := r.read(bytes.NewReader(events)); err != nil {
		return out, fmt.Errorf("%s: %w", out.log, err)
	}
	code, why := 0, ""
	if !bytes.Contains(log, []byte("\nPASS\n")) {
		code, why = 1, "its log has no end"
	}
	r.end(code, why)
	out.results = r.results
	return out, nil
}

func (o outcome) whole() bool { return o.results != nil && len(o.failures()) == 0 }

// do runs a job to completion. It returns an error if no machine could be started.
func (w workshop) do(ctx context.Context, j job) (outcome, error) {
	out := outcome{job: j, log: w.log(j)}
	if err := os.MkdirAll(filepath.Dir(out.log), 0o755); err != nil {
		return out, err
	}
	log, err := os.Create(out.log)
	if err != nil {
		return out, err
	}
	defer log.Close()
	if _, err := log.WriteString(j.head()); err != nil {
		return out, err
	}
	began := time.Now()
	r := newReader(j.suite, log)
	code, why, err := w.machine(ctx, j, r)
	if err != nil {
		return out, err
	}
	r.end(code, why)
	out.results, out.took = r.results, time.Since(began)
	return out, nil
}

// machine runs vmrun and pipes its output through go tool test2json to the reader. It returns
// vmrun's exit code and its last line.
func (w workshop) machine(ctx context.Context, j job, r *reader) (code int, why string, err error) {
	machineTimeout, testTimeout := j.limits()
	args := []string{"-kernel", j.kernel.Name, "-cgroup", cmp.Or(j.suite.cgroup, "v2"), "-timeout", machineTimeout.String()}
	for _, m := range j.suite.load {
		args = append(args, "-load", m)
	}
	if j.suite.cpus > 0 {
		args = append(args, "-cpus", strconv.Itoa(j.suite.cpus))
	}
	env := os.Environ()
	if j.suite.server {
		args = append(args, "-memory", serverMemory, "-file", filepath.Join(w.server, "etcd"), "-file", filepath.Join(w.server, "kube-apiserver"))
		env = append(env, programsEnv+"="+w.server)
	}
	args = append(args, w.binary(j.suite, j.kernel.Arch()), "-test.v=test2json", "-test.timeout="+testTimeout.String(), "-test.run="+j.run, "-test.skip="+j.suite.skip)
	vmrun := exec.CommandContext(ctx, w.runner, args...)
	vmrun.Cancel = func() error { return vmrun.Process.Signal(os.Interrupt) }
	vmrun.WaitDelay = 10 * time.Second
	vmrun.Dir, vmrun.Env = filepath.Join(w.root, j.suite.pkg), env
	var stderr bytes.Buffer
	vmrun.Stderr = io.MultiWriter(&stderr, r.log)
	convert := exec.CommandContext(ctx, "go", "tool", "test2json")
	convert.Dir = w.root
	if convert.Stdin, err = vmrun.StdoutPipe(); err != nil {
		return 0, "", err
	}
	events, err := convert.StdoutPipe()
	if err != nil {
		return 0, "", err
	}
	if err := convert.Start(); err != nil {
		return 0, "", err
	}
	if err := vmrun.Start(); err != nil {
		return 0, "", errors.Join(err, convert.Process.Kill(), convert.Wait())
	}
	err = errors.Join(r.read(events), convert.Wait())
	ended := vmrun.Wait()
	if err := errors.Join(err, ctx.Err()); err != nil {
		return 0, "", err
	}
	if exit := (*exec.ExitError)(nil); ended != nil && !errors.As(ended, &exit) {
		return 0, "", ended
	}
	lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
	why = strings.TrimPrefix(lines[len(lines)-1], "vmrun: ")
	code = vmrun.ProcessState.ExitCode()
	if code == exitSetup && len(r.results.cells) == 0 && len(r.said) == 0 {
		return code, why, &kernel.SetupError{What: why}
	}
	return code, why, nil
}

// exitSetup is the exit code of vmrun, and of this command, if no machine could be started.
const exitSetup = 2
