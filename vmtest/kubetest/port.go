package kubetest

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// FreePort returns a port of 127.0.0.1 that nothing listens on, for a program that a test starts.
func FreePort(tb testing.TB) int {
	tb.Helper()
	port, err := freePort(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return port
}

// FreeAddress returns 127.0.0.1 with a [FreePort].
func FreeAddress(tb testing.TB) string {
	tb.Helper()
	return addressOf(FreePort(tb))
}

// freePort returns one that nothing listens on. It is below those that the kernel
// gives to connections, so that none takes it while nothing listens.
func freePort(ctx context.Context) (int, error) {
	var lc net.ListenConfig
	for range 100 {
		port := 20000 + rand.IntN(10000)
		l, err := lc.Listen(ctx, "tcp", addressOf(port))
		if err == nil {
			return port, l.Close()
		}
	}
	return 0, errors.New("no free port from 20000 to 29999")
}

func addressOf(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
