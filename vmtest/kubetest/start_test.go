package kubetest

import (
	"bytes"
	"os"
	"syscall"
	"testing"

	"github.com/kernosis/kernosis/vmtest/testenv"
)

// If the disk stalls for half a minute, the API server exits, because it waits only 20 s for etcd.
// The start must then be repeated.
func TestStartOutlivesAStalledEtcd(t *testing.T) {
	testenv.OnlyInTestAll(t)
	t.Parallel()
	s := New(t, Options{})
	s.Stop(t)
	before, err := os.Stat(s.path("kube-apiserver.log"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.etcd.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	started := make(chan error)
	go func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		started <- s.startAPI(t.Context())
	}()
	testenv.Until(t, "the API server's end", startFor, func() bool {
		text, err := os.ReadFile(s.path("kube-apiserver.log"))
		return err == nil && bytes.Contains(text[before.Size():], []byte("context deadline exceeded"))
	})
	if err := s.etcd.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := <-started; err != nil {
		t.Fatal(err)
	}
}
