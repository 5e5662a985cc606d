package kubetest_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// Each write in etcd is reported once, even over a restart of the API server.
func TestEtcdChanges(t *testing.T) {
	testenv.OnlyInTestAll(t)
	server := kubetest.New(t, kubetest.Options{})
	var mu sync.Mutex
	seen := map[string][]kubetest.Change{}
	server.EtcdChanges(t, func(c kubetest.Change) {
		mu.Lock()
		defer mu.Unlock()
		seen[c.Key] = append(seen[c.Key], c)
	})
	ns := server.Namespace(t)
	server.Pod(t, ns, "before", server.Node(t))
	server.Kill(t)
	server.Start(t)
	server.DeletePod(t, ns, "before")
	// Created, marked for deletion, deleted.
	changes := func() []kubetest.Change {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(seen["/registry/pods/"+ns+"/before"])
	}
	testenv.UntilShown(t, "the pod's end", 10*time.Second, func() (bool, string) {
		c := changes()
		return len(c) > 0 && len(c[len(c)-1].Value) == 0, fmt.Sprintf("%d changes", len(c))
	})
	c := changes()
	for i := range c[:len(c)-1] {
		if c[i].Version != int64(i)+1 || !strings.Contains(string(c[i].Value), "kubetest.invalid/none:1") {
			t.Errorf("change %d: version %d: %q", i, c[i].Version, c[i].Value)
		}
	}
}
