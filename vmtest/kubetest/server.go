package kubetest

import (
	"cmp"
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

	"github.com/kernosis/kernosis/vmtest/kubetest/process"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

const (
	// startFor is how long a start may take; on two idle cores it takes 3 to 5 s.
	startFor = 2 * time.Minute

	// stopFor is how long the API server may take to shut down or to pause. With watches open, a
	// shutdown would take up to a minute, the timeout of requests.
	stopFor = 5 * time.Second

	// exitsAtOnce is the time within which the API server exits if it can't start at all.
	exitsAtOnce = 10 * time.Second
)

// Options configure a server. The zero value is ready for use.
type Options struct {
	// Flags are additional flags of kube-apiserver, such as --event-ttl=5s.
	Flags []string
	// Controllers also runs kube-controller-manager and kube-scheduler: pods are created, scheduled
	// and deleted as in any cluster. The API server then reaches kubelets ([Server.Egress]), so
	// that kubectl logs and exec work.
	Controllers bool
	// ReadyWithin is how long a start of the API server may take; 0: 2 minutes.
	ReadyWithin time.Duration
}

// Server is an etcd and a kube-apiserver. Its methods may be called concurrently, except those that
// stop and start the API server.
type Server struct {
	dir      string // state folder, accessible to this user only
	programs string // folder of the programs
	flags    []string
	ready    time.Duration // how long a start may take
	whole    bool          // with controllers
	port     int           // of the API server, on 127.0.0.1
	ca       *authority
	admin    *rest.Config
	client   *kubernetes.Clientset
	remove   func() error // removes the state folder
	borrowed bool         // belongs to the test run, which ends it

	mu        sync.Mutex
	etcd, api *process.Process // api is nil while the API server is stopped
	closed    bool
	retries   int // starts of the API server that failed and were repeated

	controllers []*process.Process // set by Start
}

// Start starts a server, whose programs it builds if needed, and returns when it is ready. The
// caller must close it.
func Start(ctx context.Context, o Options) (_ *Server, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	programs, err := Programs(ctx, os.Stderr, "server")
	if err != nil {
		return nil, err
	}
	var controllers string
	if o.Controllers {
		if controllers, err = Programs(ctx, os.Stderr, "controllers"); err != nil {
			return nil, err
		}
	}
	// A short path: the path of a unix socket has at most 107 bytes.
	dir, remove, err := process.TempDir("", "kernosis-kube-")
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, programs: programs, flags: o.Flags, ready: cmp.Or(o.ReadyWithin, startFor), whole: o.Controllers, remove: remove}
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
	if s.whole {
		if err = s.setEgress(); err != nil {
			return nil, err
		}
	}
	if err = s.startFirst(ctx); err != nil || !s.whole {
		return s, err
	}
	return s, s.startControllers(ctx, controllers)
}

// New starts a server for one test or benchmark and closes it at the end of the test.
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

// Close stops the server and removes everything it has written. It may be called more than once.
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
	// The data is discarded, so an orderly shutdown is not needed.
	for _, p := range append(slices.Clone(s.controllers), s.api, s.etcd) {
		if p != nil {
			p.Stop(syscall.SIGKILL, 0)
		}
	}
	return errors.Join(os.RemoveAll(s.dir), s.remove())
}

// Stop shuts down the API server as an upgrade does. Connections to its address are refused until
// [Server.Start].
func (s *Server) Stop(tb testing.TB) { tb.Helper(); s.end(tb, syscall.SIGTERM) }

// Kill kills the API server.
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

// Start starts the API server again, on the same port and with the same data, and returns when it
// is ready.
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

// Retries returns how often the API server exited during a start and was started again.
func (s *Server) Retries() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.retries
}

// KillEtcd kills etcd. The API server keeps running but can neither read nor write until
// [Server.StartEtcd].
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
	testenv.Until(tb, "etcd", startFor, func() bool {
		return s.client.RESTClient().Get().AbsPath("/readyz").Do(tb.Context()).Error() == nil
	})
}

// Pause stops the API server's process: the kernel still accepts connections, but nothing responds.
// It returns when all threads have stopped, which on a busy machine is a while after the signal.
func (s *Server) Pause(tb testing.TB) {
	tb.Helper()
	s.signal(tb, syscall.SIGSTOP)
	ctx, cancel := context.WithTimeout(tb.Context(), testenv.Within(stopFor))
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

// needOwn fails a test that would stop a server shared with others.
func (s *Server) needOwn(tb testing.TB) {
	tb.Helper()
	if s.borrowed {
		tb.Fatal("the API server is shared with other packages: use kubetest.New")
	}
}

// Address returns the host and port of the API server.
func (s *Server) Address() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// Processes returns the PIDs of etcd and of the API server, which must be running.
func (s *Server) Processes() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return []int{s.etcd.PID(), s.api.PID()}
}

func (s *Server) path(name string) string { return filepath.Join(s.dir, name) }
