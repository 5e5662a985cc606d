package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// After starts a shell that runs a script when this process has ended, with arguments
// $0, $1 and so on. Calling what it returns ends the shell's wait, and so does the
// kernel when it closes the files of a process that was killed; the call returns when
// the script has ended, with what it said where it failed. It may be called once.
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

// RemoveAfter is [After] for a folder that is to be removed.
func RemoveAfter(dir string) (now func() error, err error) {
	// The programs may still be writing while they are being killed.
	return After(`for i in 1 2 3 4 5 6 7 8 9 10; do rm -rf -- "$0" 2>/dev/null && exit; sleep 0.2; done`, dir)
}
