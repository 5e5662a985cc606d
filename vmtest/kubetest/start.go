package kubetest

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/kernosis/kernosis/vmtest/kubetest/process"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// startEtcd starts etcd on sockets in the state folder: they need no port, and other users of the
// machine cannot connect to them.
func (s *Server) startEtcd() (err error) {
	// Placeholder: the URLs must have a host and port, but nothing uses them.
	const shown = "http://127.0.0.1:1"
	s.etcd, err = s.run("etcd",
		"--name=kubetest", "--data-dir="+s.path("etcd"), "--log-level=warn",
		"--listen-client-urls="+s.etcdURL(), "--advertise-client-urls="+shown,
		"--listen-peer-urls=unix://"+s.path("peer.sock"), "--initial-advertise-peer-urls="+shown, "--initial-cluster=kubetest="+shown,
		// The data need not survive a crash of the machine.
		"--unsafe-no-fsync",
	)
	return err
}

// run starts one of the programs; its log is in the state folder.
func (s *Server) run(name string, args ...string) (*process.Process, error) {
	//nolint:noctx // it outlives the call, and is ended by Stop
	return process.Start(exec.Command(filepath.Join(s.programs, name), args...), name, s.path(name+".log"))
}

func (s *Server) etcdURL() string { return "unix://" + s.path("etcd.sock") }

// startFirst starts the API server on a free port.
func (s *Server) startFirst(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		port, err := freePort(ctx)
		if err != nil {
			return err
		}
		s.port = port
		if s.admin, err = s.User("kubetest-admin", "system:masters"); err != nil {
			return err
		}
		if s.client, err = kubernetes.NewForConfig(s.admin); err != nil {
			return err
		}
		// Another process may have taken the port meanwhile.
		if err = s.startAPI(ctx); err == nil || !strings.Contains(err.Error(), "address already in use") {
			return err
		}
	}
}

// startAPI starts the API server and waits until it is ready. The caller must hold mu.
func (s *Server) startAPI(ctx context.Context) error {
	within := testenv.Within(s.ready)
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("not ready after %s", within))
	defer cancel()
	for {
		began := time.Now()
		err := s.tryAPI(ctx)
		// On a busy machine the API server exceeds its own time limits, such as 20 s for etcd, and
		// exits; kubelet would start it again. If it exits sooner than that, a flag is wrong or it
		// has no port.
		if err == nil || ctx.Err() != nil || time.Since(began) < exitsAtOnce {
			return err
		}
		s.retries++
	}
}

// tryAPI starts the API server once and waits until it is ready or has ended.
func (s *Server) tryAPI(ctx context.Context) error {
	api, err := s.run("kube-apiserver", append([]string{
		"--etcd-servers=" + s.etcdURL(),
		"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(s.port),
		// Unused, as no endpoints are maintained. Without it the server looks for a default route,
		// and it rejects a loopback address.
		"--advertise-address=192.0.2.1", "--endpoint-reconciler-type=none",
		"--tls-cert-file=" + s.path("apiserver.crt"), "--tls-private-key-file=" + s.path("apiserver.key"),
		"--client-ca-file=" + s.path("ca.crt"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + s.path("sa.key"), "--service-account-signing-key-file=" + s.path("sa.key"),
		"--service-cluster-ip-range=10.96.0.0/16", "--allow-privileged=true",
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--profiling=false", "--shutdown-delay-duration=0s",
	}, s.flags...)...)
	if err != nil {
		return err
	}
	err = process.UntilReady(ctx, func(ctx context.Context) error {
		// Another server on this port would have another certificate.
		return s.client.Discovery().RESTClient().Get().AbsPath("/readyz").Timeout(5 * time.Second).Do(ctx).Error()
	}, api, s.etcd)
	if err != nil {
		api.Stop(syscall.SIGKILL, 0)
		return err
	}
	s.api = api
	return nil
}
