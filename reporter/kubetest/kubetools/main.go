// Command kubetools builds the programs that tests with a real API server run,
// where the cache does not have them, and prints the folder they are in.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/kernosis/kernosis/reporter/kubetest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := kubetest.Programs(ctx, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "kubetools:", err)
		os.Exit(1)
	}
	_, _ = fmt.Println(dir)
}
