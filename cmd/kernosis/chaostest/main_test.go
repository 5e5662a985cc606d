// Package chaostest_test harms a running agent at random and checks its reports, with a real agent, a real
// API server and etcd, real OOM kills and a real log. A seed decides what happens in which order.
//
//	make chaos SEEDS=500 SEED=1
//	make soak FOR=1h
package chaostest_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

var (
	seeds         = flag.Int("seeds", 0, "how many seeds to run; 0: a few")
	firstSeed     = flag.Uint64("seed", 1, "the first seed")
	earlierCommit = flag.String("earlier", "", "commit of the earlier version of the agent; empty: the latest release")
	diaries       = flag.Bool("diaries", false, "print what each seed did")
	soakFor       = flag.Duration("soak", 0, "how long a simulated day takes; 0: none")
)

var cluster = kubetest.Shared{Own: true} // the tests stop and kill it

func TestMain(m *testing.M) {
	if inject.RunChild(os.Args) {
		return
	}
	flag.Parse()
	log.SetLogger(logr.Discard()) // of the witness' client
	os.Exit(cluster.Run(m))
}

// TestChaos runs a plan for each seed. A failure shows its seed, the plan and the time of each step; the
// same seed gives the same plan again.
func TestChaos(t *testing.T) {
	testenv.OnlyInTestAll(t)
	if os.Geteuid() != 0 {
		t.Skip("needs root: loads programs and provokes real faults")
	}
	testenv.HoldKernel(t)
	n := *seeds
	if n == 0 {
		n = testenv.Cases(t, 1)
	}
	sum, old := newSummary(), earlier(t, *earlierCommit)
	defer func() { t.Logf("summary\n%s", sum) }()
	for seed := *firstSeed; seed < *firstSeed+uint64(n); seed++ {
		t.Run(fmt.Sprintf("seed-%d", seed), func(t *testing.T) {
			sum.seeds++
			plan := newPlan(rand.New(rand.NewPCG(seed, 0)))
			w := newWorld(t, cluster.Server(t), sum, 0)
			w.earlier = old
			t.Cleanup(func() {
				if t.Failed() {
					kept := filepath.Join(t.ArtifactDir(), "state")
					t.Logf("repeat it: make chaos SEEDS=1 SEED=%d; the agent's state: %s, %v\n%s", seed, kept, os.CopyFS(kept, os.DirFS(w.agent.State)), w.diary())
				}
			})
			w.follow(plan)
			w.check()
			t.Logf("seed %d: %.0f s", seed, time.Since(w.began).Seconds())
			if *diaries {
				t.Log(w.diary())
			}
		})
	}
}
