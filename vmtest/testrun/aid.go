package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/kernosis/kernosis/vmtest/kubetest"
)

// programNames lists the names of programs to build.
const programNames = "server, node, controllers, clients"

// sets returns the sets of Kubernetes' programs that the names of programs stand for.
func sets(names []string) (all []string, err error) {
	for _, name := range names {
		switch name {
		case "server", "node", "controllers":
			all = append(all, name)
		case "clients":
			all = append(all, "kubectl", "helm", "helm3")
		default:
			return nil, fmt.Errorf("unknown programs %q: want %s", name, programNames)
		}
	}
	return all, nil
}

// build builds programs and prints their folders. It returns the exit code.
func build(ctx context.Context, names []string, stdout, stderr io.Writer) (code int, err error) {
	all, err := sets(names)
	if err != nil {
		return 2, err
	}
	for _, set := range all {
		dir, err := kubetest.Programs(ctx, stderr, set)
		if err != nil {
			return 1, err
		}
		fmt.Fprintln(stdout, dir)
	}
	return 0, nil
}

// aid is what all packages share: the API server that they borrow, and the programs that are built
// while tests run that do not need them.
type aid struct {
	dir   string
	close func() error // stops the server
	stop  context.CancelFunc
	built chan struct{} // closed when all programs are built
}

func startAid(ctx context.Context, sets []string, stderr io.Writer) (*aid, error) {
	dir, err := os.MkdirTemp("", "kernosis-testrun-")
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	a := &aid{dir: dir, stop: stop, built: make(chan struct{})}
	if a.close, err = kubetest.Lend(ctx, a.socket()); err != nil {
		stop()
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	go func() {
		defer close(a.built)
		for _, set := range sets {
			if _, err := kubetest.Programs(ctx, stderr, set); err != nil && ctx.Err() == nil {
				fmt.Fprintln(stderr, "testrun: build:", err) // the tests that need them will fail
			}
		}
	}()
	return a, nil
}

func (a *aid) socket() string { return filepath.Join(a.dir, "server.sock") }

// env returns environment variables for the tests. Without this GORACE, each process would sleep
// for a second before it exits under the race detector.
func (a *aid) env() []string {
	return []string{
		kubetest.ServerEnv + "=" + a.socket(),
		"GORACE=" + strings.TrimSpace("atexit_sleep_ms=0 "+os.Getenv("GORACE")),
	}
}

func (a *aid) end() error {
	a.stop()
	<-a.built
	return errors.Join(a.close(), os.RemoveAll(a.dir))
}
