package lease

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

var cluster kubetest.Shared

func TestMain(m *testing.M) { os.Exit(cluster.Run(m)) }

// deadline is for things that take milliseconds on an idle machine.
const deadline = 30 * time.Second

// rig is a Keeper, its Node and its namespace.
type rig struct {
	*Keeper
	t               testing.TB
	server          *kubetest.Server
	namespace, node string
	cancel          context.CancelFunc
	ended           chan error

	mu      sync.Mutex
	earlier []string
}

// start runs a Keeper, by default with its own Node and namespace.
func start(t testing.TB, server *kubetest.Server, change func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, server: server}
	c := Config{
		Client: server.Client(), Interval: 50 * time.Millisecond, timeout: 2 * time.Second, StartJitter: -1, Version: "v1",
		Types:     func() []string { return []string{"B", "A"} },
		OnEarlier: func(types []string) { r.mu.Lock(); defer r.mu.Unlock(); r.earlier = types },
	}
	if change != nil {
		change(&c)
	}
	if c.Node == "" {
		c.Node = server.Node(t)
	}
	if c.Namespace == "" {
		c.Namespace = server.Namespace(t)
	}
	r.node, r.namespace = c.Node, c.Namespace
	k, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	r.Keeper = k
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel, r.ended = cancel, make(chan error, 1)
	go func() { r.ended <- r.Run(ctx); close(r.ended) }()
	t.Cleanup(func() { r.stop() })
	return r
}

// stop ends the Keeper and returns Run's error.
func (r *rig) stop() error {
	r.cancel()
	return <-r.ended
}

func (r *rig) was() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.earlier
}

// lease returns the current Lease, or nil if there is none.
func (r *rig) lease() *coordinationv1.Lease {
	r.t.Helper()
	l, err := r.server.Client().CoordinationV1().Leases(r.namespace).Get(context.Background(), Name(r.node), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return l
}

func (r *rig) waitFor(what string, ok func() bool) {
	r.t.Helper()
	testenv.UntilShown(r.t, what, deadline, func() (bool, string) { return ok(), fmt.Sprintf("%+v", r.Stats()) })
}

// waitRenewals waits until this many more renewals have succeeded.
func (r *rig) waitRenewals(more uint64) {
	r.t.Helper()
	count := func() uint64 { s := r.Stats(); return s.Renewals[Renewed] + s.Renewals[Created] }
	from := count()
	r.waitFor("renewals", func() bool { return count() >= from+more })
}
