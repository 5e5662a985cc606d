// Command kubetools builds the programs for tests with a real API server, unless they are in the
// cache, and prints their folders.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/kernosis/kernosis/vmtest/kubetest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	sets := []string{"server"}
	more := func(name, what string, all ...string) {
		flag.BoolFunc(name, what, func(string) error { sets = append(sets, all...); return nil })
	}
	more("clients", "kubectl and helm (4 and 3) too", "kubectl", "helm", "helm3")
	more("node", "kubelet too", "node")
	more("controllers", "kube-controller-manager and kube-scheduler too", "controllers")
	flag.Parse()
	for _, name := range sets {
		dir, err := kubetest.Programs(ctx, os.Stderr, name)
		if err != nil {
			fmt.Fprintln(os.Stderr, "kubetools:", err)
			os.Exit(1)
		}
		_, _ = fmt.Println(dir)
	}
}
