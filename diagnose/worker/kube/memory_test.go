package kube

import (
	"fmt"
	"runtime"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kernosis/kernosis/diagnose/api/apitest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// heap returns the bytes in use after garbage collection.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A cluster with 200 sets of 50 nodes each, all with a status from the controller, takes less than
// two MiB of a node's memory.
func TestMemoryOfManySets(t *testing.T) {
	testenv.OnlyInTestAll(t)
	server, c := served(t)
	const sets, nodes = 200, 50
	prefix := unique(t, "s")
	for i := range sets {
		var list []string
		for n := range nodes {
			list = append(list, fmt.Sprintf("operation-%d", n))
		}
		s := create(t, c, apitest.SetOf(fmt.Sprintf("%s-%d", prefix, i), list...))
		s.Status.Ready, s.Status.PathCount = true, "100"
		for p := range 100 {
			s.Status.Paths = append(s.Status.Paths, make([]int32, 50)[:p/2+1])
		}
		if err := c.Status().Update(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	defer func() { // other tests share the server
		for i := range sets {
			remove(t, c, apitest.SetOf(fmt.Sprintf("%s-%d", prefix, i)))
		}
	}()
	before := heap()
	r := start(t, server.Admin(), nil)
	r.synced()
	known := 0
	for i := range sets {
		if _, ok := r.sets.get(types.NamespacedName{Name: fmt.Sprintf("%s-%d", prefix, i)}); ok {
			known++
		}
	}
	if known != sets {
		t.Fatalf("%d sets are known", known)
	}
	taken := heap() - before
	t.Logf("%d sets of %d nodes: %d KiB, %d bytes a node", sets, nodes, taken>>10, taken/(sets*nodes))
	if taken > 2<<20 && !underRace {
		t.Errorf("%d KiB", taken>>10)
	}
	runtime.KeepAlive(r)
}
