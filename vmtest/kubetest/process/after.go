package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// After starts a shell that runs a script, with arguments $0, $1 and so on, when this process has
// ended: the kernel then closes the pipe that the shell waits for, even if the process is killed.
// The returned function runs the script at once; it returns when the script has ended, with its
// output if it failed. It may be called once.
func After(script string, args ...string) (now func() error, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	var said strings.Builder
	//nolint:noctx // it has to outlive this process
	cmd := exec.Command("/bin/sh", append([]string{"-c", "read -r _\n" + script}, args...)...)
	cmd.Stdin = r
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	_ = r.Close()
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return func() error {
		err := errors.Join(w.Close(), cmd.Wait())
		if err != nil {
			return fmt.Errorf("clean up: %w: %s", err, strings.TrimSpace(said.String()))
		}
		return nil
	}, nil
}

// RemoveAfter is [After] for removing a folder.
func RemoveAfter(dir string) (now func() error, err error) {
	// Killed programs may still be writing.
	return After(`for i in 1 2 3 4 5 6 7 8 9 10; do rm -rf -- "$0" 2>/dev/null && exit; sleep 0.2; done`, dir)
}
