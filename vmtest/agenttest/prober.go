package agenttest

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/kernosis/kernosis/vmtest/netlab"
)

// kubelet is the process name by which the agent recognises a prober.
const kubelet = "kubelet"

// RunProber must be called by the TestMain of packages that use [Prober]. If the program is run
// under the name kubelet, RunProber requests a URL every second, as kubelet does, until its input
// ends, and returns true.
func RunProber(args []string) bool {
	if filepath.Base(args[0]) != kubelet {
		return false
	}
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true, Proxy: nil}}
	done := make(chan struct{})
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); close(done) }()
	tick := time.NewTicker(time.Second)
	for {
		if res, err := client.Get(args[1]); err == nil {
			_ = res.Body.Close()
			fmt.Println(res.Status)
		} else {
			fmt.Println(err)
		}
		select {
		case <-done:
			return true
		case <-tick.C:
		}
	}
}

// Prober starts a process named kubelet that probes a URL from a network namespace until the end of
// the test.
func Prober(t *testing.T, in *netlab.Net, url string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), kubelet)
	if err := os.Symlink(self, path); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, url)
	cmd.Stderr = os.Stderr
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	in.In(cmd.Start)
	t.Cleanup(func() {
		_ = input.Close()
		_ = cmd.Wait()
	})
}
