package kubetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kernosis/kernosis/vmtest/await"
	"github.com/kernosis/kernosis/vmtest/kubetest/process"
)

const (
	// startFor is how long a start may take; alone on two cores it is 3 to 5 s.
	startFor = 2 * time.Minute

	// stopFor is how long the API server may take to end in order, or to pause. With watches open
	// it would take the minute that requests may.
	stopFor = 5 * time.Second
)

// Options are how a server differs from the default. The zero value is good.
type Options struct {
	// Flags are further ones of kube-apiserver, such as --event-ttl=5s.
	Flags []string
	// Controllers has kube-controller-manager and kube-scheduler run too: what is in pods is
	// made, bound to nodes and deleted as in any cluster. The API server then reaches
	// kubelets ([Server.Egress]), so that kubectl logs and exec work.
	Controllers bool
}

// Server is an etcd and a kube-apiserver. Its methods may be called by several
// goroutines; those that stop and start the API server by one at a time.
type Server struct {
	dir      string // state folder, for us alone
	programs string // folder
	flags    []string
	whole    bool // with controllers
	port     int  // of the API server, on 127.0.0.1
	ca       *authority
	admin    *rest.Config
	client   *kubernetes.Clientset
	remove   func() error // the state folder
	borrowed bool         // from the test run, which ends it

	mu        sync.Mutex
	etcd, api *process.Process // api is nil while it is stopped
	closed    bool

	controllers []*process.Process // set by the start
}

// Start starts a server, built first where need be, and returns when it is ready.
// The caller closes it.
func Start(ctx context.Context, o Options) (_ *Server, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	programs, err := Programs(ctx, os.Stderr)
	if err != nil {
		return nil, err
	}
	var controllers string
	if o.Controllers {
		if controllers, err = ControllerPrograms(ctx, os.Stderr); err != nil {
			return nil, err
		}
	}
	// A short path: the one of a unix socket has at most 107 bytes.
	dir, err := os.MkdirTemp("", "kernosis-kube-")
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, programs: programs, flags: o.Flags, whole: o.Controllers}
	if s.remove, err = process.RemoveAfter(dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.ca, err = newAuthority(); err != nil {
		return nil, err
	}
	if err = s.ca.writeKeys(dir); err != nil {
		return nil, err
	}
	if err = s.startEtcd(); err != nil {
		return nil, err
	}
	if !s.whole {
		return s, s.startFirst(ctx)
	}
	if err = s.writeEgress(); err != nil {
		return nil, err
	}
	s.flags = append(s.egressFlags(), s.flags...)
	if err = s.startFirst(ctx); err != nil {
		return nil, err
	}
	return s, s.startControllers(ctx, controllers)
}

// New starts a server for one test or benchmark, which is ended with it.
func New(tb testing.TB, o Options) *Server {
	tb.Helper()
	s, err := Start(tb.Context(), o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// Close ends it and removes all that it has written. It may be called again.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	if s.borrowed {
		s.hangUp()
		return nil
	}
	// The data is thrown away: nothing is gained by an orderly end.
	for _, p := range append(slices.Clone(s.controllers), s.api, s.etcd) {
		if p != nil {
			p.Stop(syscall.SIGKILL, 0)
		}
	}
	return errors.Join(os.RemoveAll(s.dir), s.remove())
}

// Stop ends the API server in order, as an upgrade does. Its address answers
// "connection refused" until [Server.Start].
func (s *Server) Stop(tb testing.TB) { tb.Helper(); s.end(tb, syscall.SIGTERM) }

// Kill ends the API server in the middle of what it does.
func (s *Server) Kill(tb testing.TB) { tb.Helper(); s.end(tb, syscall.SIGKILL) }

func (s *Server) end(tb testing.TB, signal syscall.Signal) {
	tb.Helper()
	s.needOwn(tb)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.api == nil {
		tb.Fatal("the API server is stopped already")
	}
	s.api.Stop(signal, stopFor)
	s.api = nil
}

// Start starts the API server again, on the same port and with the same data, and
// returns when it is ready.
func (s *Server) Start(tb testing.TB) {
	tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.api != nil {
		tb.Fatal("the API server is not stopped")
	}
	if err := s.startAPI(tb.Context()); err != nil {
		tb.Fatal(err)
	}
}

// KillEtcd kills etcd in the middle of what it does. The API server runs on, but can neither read
// nor write until [Server.StartEtcd].
func (s *Server) KillEtcd(tb testing.TB) {
	tb.Helper()
	s.needOwn(tb)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.etcd.Stop(syscall.SIGKILL, stopFor)
}

// StartEtcd starts etcd again, with the same data, and returns when the API server is ready.
func (s *Server) StartEtcd(tb testing.TB) {
	tb.Helper()
	s.mu.Lock()
	err := s.startEtcd()
	s.mu.Unlock()
	if err != nil {
		tb.Fatal(err)
	}
	await.Until(tb, "etcd", startFor, func() bool {
		return s.client.RESTClient().Get().AbsPath("/readyz").Do(tb.Context()).Error() == nil
	})
}

// Pause keeps the API server from running: connections to it are accepted by the
// kernel, and nothing answers. It returns when all its threads have stopped, which on a
// busy machine is a while after the signal.
func (s *Server) Pause(tb testing.TB) {
	tb.Helper()
	s.signal(tb, syscall.SIGSTOP)
	ctx, cancel := context.WithTimeout(tb.Context(), await.Within(stopFor))
	defer cancel()
	err := wait.PollUntilContextCancel(ctx, 5*time.Millisecond, true, func(context.Context) (bool, error) {
		return s.api.Stopped()
	})
	if err != nil {
		tb.Fatalf("pause the API server: %v", err)
	}
}

// Resume ends a pause.
func (s *Server) Resume(tb testing.TB) { tb.Helper(); s.signal(tb, syscall.SIGCONT) }

func (s *Server) signal(tb testing.TB, signal syscall.Signal) {
	tb.Helper()
	s.needOwn(tb)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.api == nil {
		tb.Fatal("the API server is stopped")
	}
	if err := s.api.Signal(signal); err != nil {
		tb.Fatal(err)
	}
}

// needOwn fails a test that would stop a server which others use.
func (s *Server) needOwn(tb testing.TB) {
	tb.Helper()
	if s.borrowed {
		tb.Fatal("the API server is shared with other packages: use kubetest.New")
	}
}

// Address returns the host and port of the API server.
func (s *Server) Address() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// Processes returns the numbers of etcd's process and of the API server's, which runs.
func (s *Server) Processes() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return []int{s.etcd.PID(), s.api.PID()}
}

func (s *Server) path(name string) string { return filepath.Join(s.dir, name) }
