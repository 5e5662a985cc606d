// Command probepod is the program of all pods of a test node: of those whose probes fail in a way
// that a test chooses ([fault.Mode]), and as "pause" of the container that holds a pod's namespaces.
//
// As process 1 of a container it starts itself as "serve", because process 1 can't be stopped from
// within. "probe" is the command of an exec probe.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/kernosis/kernosis/collector/process"
	"github.com/kernosis/kernosis/vmtest/kubetest/node/fault"
)

func main() {
	role := ""
	if len(os.Args) > 1 {
		role = os.Args[1]
	}
	if err := run(role); err != nil {
		fmt.Fprintln(os.Stderr, "probepod:", err)
		os.Exit(1)
	}
}

func run(role string) error {
	switch role {
	case "":
		return supervise()
	case "serve":
		return serve()
	case "probe":
		return probe()
	case "burn":
		for { //nolint:staticcheck // it is to spin
		}
	case "eat":
		return eat()
	case "crash":
		return crash(os.Args[2:])
	case "pause":
		pause()
		return nil
	}
	return fmt.Errorf("no such role: %q", role)
}

// supervise starts the server and returns when it has ended, or on a signal.
func supervise() error {
	path, err := os.Executable()
	if err != nil {
		return err
	}
	server := exec.Command(path, "serve") //nolint:noctx // ended by a signal
	server.Stdout, server.Stderr = os.Stdout, os.Stderr
	if err := server.Start(); err != nil {
		return err
	}
	reported := make(chan os.Signal, 1)
	signal.Notify(reported, syscall.SIGTERM, syscall.SIGINT)
	ended := make(chan error, 1)
	go func() { ended <- server.Wait() }()
	select {
	case <-reported:
		// Shut down like a program that finishes its requests, so that faults can still be
		// observed.
		time.Sleep(time.Second)
		return nil // the kernel kills the remaining processes
	case err := <-ended:
		return errors.Join(errors.New("the server has ended"), err)
	}
}

// modeFile contains the mode, for exec probes.
const modeFile = "/tmp/mode"

func probe() error {
	text, err := os.ReadFile(modeFile)
	if err != nil {
		return err
	}
	switch fault.Mode(text) {
	case fault.ExecFails:
		return errors.New("not well")
	case fault.ExecHangs:
		time.Sleep(time.Hour)
	}
	return nil
}

// child starts this program in another role; it ends with this process.
func child(role string) (*exec.Cmd, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, role) //nolint:noctx // as long as this process
	cmd.Stderr = os.Stderr
	return cmd, process.StartTied(cmd)
}

// eat allocates memory until it is OOM-killed, as the first process in its cgroup.
func eat() error {
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0o644); err != nil {
		return err
	}
	var all [][]byte
	for range 1 << 10 { // 1 GiB: without a limit it ends by itself
		part := make([]byte, 1<<20)
		for i := 0; i < len(part); i += os.Getpagesize() {
			part[i] = 1
		}
		all = append(all, part)
	}
	return fmt.Errorf("nobody killed it at %d MiB", len(all))
}

// crash replaces this process by one that crashes, with the names of a process and a file.
func crash(names []string) error {
	if len(names) != 2 {
		return fmt.Errorf("crash: want the names of a process and a file, have %q", names)
	}
	dir, err := os.MkdirTemp("/tmp", "crash")
	if err != nil {
		return err
	}
	path, file := filepath.Join(dir, names[0]), filepath.Join(dir, names[1])
	if err := os.WriteFile(file, fault.CrashProgram(), 0o755); err != nil {
		return err
	}
	if err := os.Symlink(names[1], path); err != nil {
		return err
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{}); err != nil {
		return err
	}
	return syscall.Exec(path, []string{path}, nil)
}
