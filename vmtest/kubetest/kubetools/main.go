// Command kubetools builds the programs for tests with a real API server, unless they are in the
// cache, and prints their folders.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/kernosis/kernosis/vmtest/kubetest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	type programs = func(context.Context, io.Writer) (string, error)
	sets := []programs{kubetest.Programs}
	more := func(name, what string, all ...programs) {
		flag.BoolFunc(name, what, func(string) error { sets = append(sets, all...); return nil })
	}
	more("clients", "kubectl and helm (4 and 3) too", kubetest.KubectlProgram, kubetest.HelmProgram, kubetest.Helm3Program)
	more("node", "kubelet too", kubetest.NodePrograms)
	more("controllers", "kube-controller-manager and kube-scheduler too", kubetest.ControllerPrograms)
	flag.Parse()
	for _, programs := range sets {
		dir, err := programs(ctx, os.Stderr)
		if err != nil {
			fmt.Fprintln(os.Stderr, "kubetools:", err)
			os.Exit(1)
		}
		_, _ = fmt.Println(dir)
	}
}
