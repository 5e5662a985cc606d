package monitoringtest_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/reporter/kubetest"
)

var cluster kubetest.Shared

func TestMain(m *testing.M) {
	if inject.RunChild(os.Args) || runKubelet(os.Args) {
		return
	}
	os.Exit(cluster.Run(m))
}

// runKubelet is what this program does under the name of kubelet: it asks for a URL every
// second, as kubelet does, until its input ends.
func runKubelet(args []string) bool {
	if filepath.Base(args[0]) != "kubelet" {
		return false
	}
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true, Proxy: nil}}
	done := make(chan struct{})
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); close(done) }()
	tick := time.NewTicker(time.Second)
	for {
		if res, err := client.Get(args[1]); err == nil {
			_ = res.Body.Close()
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
