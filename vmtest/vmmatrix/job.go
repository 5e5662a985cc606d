package main

import (
	"bytes"
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

// A job is a suite on a kernel: one machine.
type job struct {
	suite  suite
	kernel kernel.Kernel
	run    string // -test.run

	release string // of the kernel's image
}

// head is the first line of a job's log: whose it is.
func (j job) head() string {
	return fmt.Sprintf("vmmatrix: %s on %s, -test.run=%q\n", j.suite.name, j.release, j.run)
}

// limits returns how long a machine may take, and its tests: a hung test is to show its
// stacks. The faults take 7 minutes under emulation, and 12 where the machine has other work.
// Another architecture is always emulated: half of the faults took 11 minutes on two cores
// that were shared.
func (j job) limits() (machine, tests time.Duration) {
	tests = 25 * time.Minute
	if j.kernel.Arch() != runtime.GOARCH {
		tests *= 2
	}
	return tests + 2*time.Minute, tests
}

// workshop is where jobs are done.
type workshop struct {
	root   string // of the module
	runner string // the vmrun executable
	dir    string // test binaries and logs
	server string // the folder of etcd and kube-apiserver; "": no suite needs them
}

// programsEnv has the tests take these programs and build none.
const programsEnv = "KERNOSIS_KUBE_PROGRAMS"

// serverMemory is of a machine that also runs etcd and kube-apiserver, with
// 330 MB in its initial file system, of which there are two copies while it is unpacked.
const serverMemory = "2GiB"

// findServer returns the folder of etcd and kube-apiserver, and builds them where need be.
func (w workshop) findServer(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "run", "./vmtest/kubetest/kubetools")
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

// build compiles a suite's test binary, static, so that it runs anywhere on its architecture.
func (w workshop) build(ctx context.Context, s suite, arch string) error {
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-o", w.binary(s, arch), "./"+s.pkg)
	cmd.Dir = w.root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+arch)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the tests of %s: %w\n%s", s.pkg, err, out)
	}
	return nil
}

// outcome is a job's end.
type outcome struct {
	job
	*results
	took time.Duration
	log  string // file
}

func (w workshop) log(j job) string {
	return filepath.Join(w.dir, j.kernel.Name, strings.ReplaceAll(j.suite.name, " ", "-")+".log")
}

// read returns the outcome that the job's log reports; where it is of another kernel or of
// other tests, or is not there, none.
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

// whole reports whether there is an outcome, and nothing failed.
func (o outcome) whole() bool {
	if o.results == nil {
		return false
	}
	for _, c := range o.cells {
		if c.state == failed {
			return false
		}
	}
	return true
}

// do runs a job to its end. It is an error if no machine could be had.
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

// machine runs vmrun, through go tool test2json, into the reader. It returns
// vmrun's exit code and its own last word.
func (w workshop) machine(ctx context.Context, j job, r *reader) (code int, why string, err error) {
	machineTimeout, testTimeout := j.limits()
	args := []string{"-kernel", j.kernel.Name, "-cgroup", j.suite.cgroup, "-timeout", machineTimeout.String()}
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

// exitSetup is what vmrun, and this command, exit with where no machine could be
// had.
const exitSetup = 2
