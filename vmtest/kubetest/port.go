package kubetest

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// FreePort returns a free port of 127.0.0.1, for a program that a test starts.
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

// freePort returns a free port below the kernel's range of ephemeral ports, so that no outgoing
// connection takes it before it is used.
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
