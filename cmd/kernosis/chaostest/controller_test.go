package chaostest_test

import (
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	tied "github.com/kernosis/kernosis/collector/process"
	"github.com/kernosis/kernosis/vmtest/agenttest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// controller is a controller that is restarted when it ends, as in a Deployment.
type controller struct {
	w    *world
	name string
	args []string
	log  agenttest.Log

	mu     sync.Mutex
	cmd    *exec.Cmd
	ending bool
	ended  chan struct{}
}

func newController(w *world, name, kubeconfig, namespace string) *controller {
	w.t.Helper()
	c := &controller{w: w, name: name, ended: make(chan struct{}), args: []string{"controller", "--kubeconfig", kubeconfig, "--namespace", namespace,
		"--metrics-listen", "", "--health-listen", ""}}
	started := make(chan struct{})
	go c.run(started)
	<-started
	w.t.Cleanup(func() {
		c.stop()
		if w.t.Failed() {
			w.t.Logf("log of %s:\n%s", c.name, c.log.String())
		}
	})
	return c
}

func (c *controller) run(started chan<- struct{}) {
	defer close(c.ended)
	again := time.NewTicker(200 * time.Millisecond)
	defer again.Stop()
	for {
		c.mu.Lock()
		if c.ending {
			c.mu.Unlock()
			return
		}
		c.cmd = exec.Command(agenttest.Program(c.w.t), c.args...)
		c.cmd.Stderr = &c.log
		err := tied.StartTied(c.cmd)
		c.mu.Unlock()
		if started != nil {
			close(started)
			started = nil
		}
		if err != nil {
			c.w.t.Error(err)
			return
		}
		_ = c.cmd.Wait() // lost leadership ends it, too
		<-again.C
	}
}

// signal sends the controller a signal; between two starts it has no effect.
func (c *controller) signal(s syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.cmd.Process.Signal(s)
}

// pid returns the process ID of the latest run.
func (c *controller) pid() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cmd.Process.Pid
}

// stop shuts the controller down cleanly, without a restart.
func (c *controller) stop() {
	c.mu.Lock()
	c.ending = true
	c.mu.Unlock()
	c.signal(syscall.SIGTERM)
	kill := time.AfterFunc(testenv.Within(quietWithin), func() { c.signal(syscall.SIGKILL) })
	defer kill.Stop()
	<-c.ended
}

// complaint returns a line of a program's log that no harm justifies.
func complaint(log string) (line string, found bool) {
	for line := range strings.Lines(log) {
		if strings.HasPrefix(line, "panic:") || strings.Contains(line, "fatal error:") || strings.Contains(line, "DATA RACE") {
			return line, true
		}
	}
	return "", false
}
