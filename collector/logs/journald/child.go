package journald

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/process"
)

// ErrNoJournalctl is reported if there is no journalctl, so that the journal can't be read.
var ErrNoJournalctl = errors.New("journalctl not found")

// child is a running journalctl.
type child struct {
	out    *os.File // its standard output
	pid    int
	cancel context.CancelFunc
	done   chan struct{} // closed when it has ended
	err    error         // how it ended; read it after done is closed
	exit   error         // the same without its standard error; nil: exit code 0
}

// startChild runs the command with root as its root directory ("": the real one) until ctx ends.
func startChild(ctx context.Context, root, command string, args []string) (*child, error) {
	out, in, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	said := &lastWords{}
	cmd := exec.CommandContext(ctx, command, args...)
	cmd.Dir = "/"
	cmd.Env = []string{
		"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "SYSTEMD_LOG_TARGET=console", "SYSTEMD_LOG_COLOR=0", "SYSTEMD_LOG_LEVEL=notice",
	}
	cmd.Stdout, cmd.Stderr = in, said
	// The process group includes whatever journalctl may start.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Chroot: root}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = time.Second
	err = process.StartTied(cmd)
	_ = in.Close() // the child has its own copy
	if err != nil {
		cancel()
		_ = out.Close()
		return nil, fmt.Errorf("start journalctl: %w", err)
	}
	c := &child{out: out, pid: cmd.Process.Pid, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.exit = cmd.Wait()
		c.err = said.explain(c.exit)
	}()
	return c, nil
}

// waits reports whether the child is in uninterruptible sleep: it waits for a disk or a file server.
func (c *child) waits() bool {
	st, err := hostfs.New("").Stat(c.pid)
	return err == nil && st.State == 'D'
}

// stop ends the child, and returns how it ended.
func (c *child) stop() error {
	c.cancel()
	<-c.done
	_ = c.out.Close()
	return c.err
}

// lastWords keeps the end of a child's standard error.
type lastWords struct {
	mu   sync.Mutex
	text []byte
}

// maxWords is enough for a few lines.
const maxWords = 512

// Write implements io.Writer.
func (w *lastWords) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, b...)
	if n := len(w.text) - maxWords; n > 0 {
		w.text = append(w.text[:0], w.text[n:]...)
	}
	return len(b), nil
}

// explain adds the last line of standard error to the error that a child ended with.
func (w *lastWords) explain(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	lines := bytes.Split(bytes.TrimSpace(w.text), []byte{'\n'})
	if last := lines[len(lines)-1]; len(last) > 0 {
		if err == nil {
			return fmt.Errorf("journalctl has ended: %q", last)
		}
		return fmt.Errorf("journalctl has ended: %w: %q", err, last)
	}
	if err == nil {
		return errors.New("journalctl has ended")
	}
	return fmt.Errorf("journalctl has ended: %w", err)
}

// findCommand returns the path of journalctl below root.
func findCommand(root string) (string, error) {
	candidates := []string{"/usr/bin/journalctl", "/bin/journalctl"}
	for _, c := range candidates {
		// A link may lead anywhere below root: it is enough that it exists.
		if _, err := os.Lstat(filepath.Join(root, c)); err == nil {
			return c, nil
		} else if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
			return "", err
		}
	}
	where := strings.Join(candidates, ", ")
	if root != "" {
		where += " below " + root
	}
	return "", fmt.Errorf("%w: looked for %s", ErrNoJournalctl, where)
}

// readMachineID returns the host's machine id, or "" if it is not known.
func readMachineID(host hostfs.FS) string {
	b, err := host.ReadFile("/etc/machine-id", 64)
	if err != nil {
		return ""
	}
	id := string(bytes.TrimSpace(b))
	if len(id) != 32 || strings.Trim(id, "0123456789abcdef") != "" {
		return ""
	}
	return id
}
