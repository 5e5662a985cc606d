package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/process"
	"github.com/kernosis/kernosis/vmtest/kernel"
)

// Spec describes a machine and the program that runs in it.
type Spec struct {
	Kernel kernel.Image
	Config Config
	Init   string // the executable that calls Init
	Cgroup string // CgroupV1 or CgroupV2
	Accel  Accel

	Args []string // an executable on this host and its arguments; if empty, boot and power off
	Env  []string // of the program
	Dir  string   // its working directory; its testdata is packed

	Output  io.Writer     // receives the program's output as it is printed
	Timeout time.Duration // for the whole run, from power-on to power-off
}

// Outcome is how a machine ended.
type Outcome struct {
	Ending  Ending
	Verdict Verdict // how the program ended; only for Finished
	Console string  // the last lines of the kernel's console
	Reason  string  // why it died, in the kernel's words; only for Died
	Took    time.Duration
}

// Ending says how a run ended: with the program, at the timeout, or because the machine died.
type Ending int

// The possible endings.
const (
	Finished Ending = iota // the program ended by itself
	TimedOut               // the machine was still running at the timeout
	Died                   // the machine ended without reporting on the program: a kernel panic
)

// switchOff is how long a machine may take to power off after its program has ended.
const switchOff = 15 * time.Second

// Run boots the machine and returns how it ended. It returns an error if the machine could not be
// started: a *kernel.SetupError if this host lacks something.
func (s Spec) Run(ctx context.Context) (Outcome, error) {
	dir, err := os.MkdirTemp("", "vmrun-")
	if err != nil {
		return Outcome{}, err
	}
	defer os.RemoveAll(dir)
	p := plan{Cgroup: s.Cgroup, Args: s.Args, Env: s.Env, Dir: s.Dir}
	if err := s.writeInitramfs(filepath.Join(dir, "initramfs"), p); err != nil {
		return Outcome{}, err
	}
	return s.boot(ctx, dir)
}

func (s Spec) writeInitramfs(path string, p plan) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, f.Close())
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
			err = &kernel.SetupError{
				What: fmt.Sprintf("no space for a machine's files in %s", os.TempDir()),
				Do:   "free 300 MiB there, or set TMPDIR to a folder that has them",
			}
		}
	}()
	return s.initramfs(f, p)
}

func (s Spec) boot(ctx context.Context, dir string) (Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	cmd, err := s.command(ctx, dir)
	if err != nil {
		return Outcome{}, err
	}
	verdicts, report, err := os.Pipe()
	if err != nil {
		return Outcome{}, err
	}
	defer verdicts.Close()
	var stderr strings.Builder
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = s.Output, &stderr, []*os.File{report}
	began := time.Now()
	err = process.StartTied(cmd)
	_ = report.Close()
	if err != nil {
		return Outcome{}, fmt.Errorf("start qemu: %w", err)
	}
	reported := make(chan *Verdict, 1)
	go func() {
		defer close(reported)
		var v Verdict
		if json.NewDecoder(verdicts).Decode(&v) == nil {
			reported <- &v
		}
	}()
	verdict, ok := <-reported
	if ok {
		// Wait for the power-off, which flushes the console, but not for long.
		defer time.AfterFunc(switchOff, cancel).Stop()
	}
	err = cmd.Wait()
	out := Outcome{Took: time.Since(began)}
	out.Console, out.Reason = readConsole(filepath.Join(dir, "console"))
	switch {
	case ok:
		out.Ending, out.Verdict = Finished, *verdict
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		out.Ending = TimedOut
	case ctx.Err() != nil:
		return out, context.Cause(ctx)
	case err != nil && out.Console == "":
		return out, fmt.Errorf("qemu: %w: %s", err, strings.TrimSpace(stderr.String()))
	default:
		out.Ending = Died
	}
	return out, nil
}

func (s Spec) command(ctx context.Context, dir string) (*exec.Cmd, error) {
	board := boardOf(s.Kernel.Arch())
	qemu, err := kernel.FindProgram(board.qemu)
	if err != nil {
		return nil, err
	}
	const reportFD = 3 // the first of ExtraFiles
	args := []string{
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-monitor", "none",
		"-machine", board.machine, "-m", s.Config.memoryArg(), "-smp", strconv.Itoa(s.Config.CPUs),
		"-kernel", s.Kernel.Vmlinuz, "-initrd", filepath.Join(dir, "initramfs"), "-append", kernelArgs + board.args + " console=" + board.console,
		"-serial", "file:" + filepath.Join(dir, "console"),
		"-chardev", "stdio,id=output,signal=off",
		"-add-fd", fmt.Sprintf("fd=%d,set=1", reportFD), "-chardev", "file,id=report,path=/dev/fdset/1,append=on",
	}
	args = append(append(append(args, board.ports...), s.Accel.args(board)...), s.Config.QEMU...)
	cmd := exec.CommandContext(ctx, qemu, args...)
	cmd.WaitDelay = time.Second
	return cmd, nil
}

// kernelArgs make a kernel end the machine instead of continuing after a fault, keep it quiet, and
// skip what only costs time under emulation (self-tests of the crypto modules, mitigations for the
// host's CPU).
const kernelArgs = "rdinit=" + initPath + " panic=-1 oops=panic quiet loglevel=5 " +
	"mitigations=off cryptomgr.notests tsc=unstable random.trust_cpu=on raid=noautodetect"
