package events_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/pods"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/reporter/kube/events"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// childEnv makes the test binary an agent that reports childEntries kills. Unless the variable is
// "none", the agent kills itself with SIGKILL at a stage: "stage n" means the nth time it gets
// there.
const (
	childEnv     = "KERNOSIS_EVENTS_CHILD"
	childEntries = 120
	childPods    = 3
)

// Additional stages of the child.
const (
	stageAppended = "appended" // an entry is in the journal, but was not passed to the sink
	stageInFlight = "inflight" // a request was sent, its answer has not arrived
)

// childPodsOf returns pods that need not exist, because Events don't require them.
type childPodsOf string

func (c childPodsOf) Known(time.Time) bool { return true }
func (c childPodsOf) Pod(uid string) (pods.Pod, bool) {
	return pods.Pod{UID: uid, Namespace: string(c), Name: uid}, true
}

// killer kills the process at a stage.
type killer struct {
	stage string
	left  atomic.Int64
}

func (k *killer) reach(stage string) {
	if stage == k.stage && k.left.Add(-1) == 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // stop here until the signal takes effect
	}
}

// childEntry returns the ith entry, the same in each child.
func childEntry(i int) journal.Entry {
	at := time.Unix(1.7e9+int64(i), 0)
	e := journal.Entry{Now: at, Event: &event.Event{CPU: 1}}
	uid := fmt.Sprint("pod-", i%childPods)
	e.Transitions = []problem.Transition{{Problem: &problem.Problem{
		Rule: "oom-kill", Group: uid, Pod: uid, Reason: "OOMKilling", Message: fmt.Sprint("kill ", i),
		Severity: problem.Warning, State: problem.Firing, FirstSeen: at, LastSeen: at,
	}}}
	if i%10 == 0 {
		status := problem.True
		if i%20 == 0 {
			status = problem.False
		}
		e.Transitions = append(e.Transitions, problem.Transition{Condition: &problem.Condition{Type: "C", Status: status, Reason: "R", LastTransition: at}})
	}
	return e
}

func child() int {
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, "child:", err)
		return 1
	}
	what, times, _ := strings.Cut(os.Getenv(childEnv), " ")
	n, _ := strconv.Atoi(times)
	k := &killer{stage: what}
	k.left.Store(int64(n))
	dir := os.Getenv("CHILD_DIR")
	cfg, err := clientcmd.BuildConfigFromFlags("", os.Getenv("CHILD_KUBECONFIG"))
	if err != nil {
		return fail(err)
	}
	cfg.QPS = -1
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			go k.reach(stageInFlight)
			return next.RoundTrip(r)
		})
	})
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return fail(err)
	}
	store, err := journal.Open(filepath.Join(dir, "journal"), journal.Options{Patience: time.Minute})
	if err != nil {
		return fail(err)
	}
	sink, err := events.New(events.Config{
		Node: os.Getenv("CHILD_NODE"), Client: client, Pods: childPodsOf(os.Getenv("CHILD_NAMESPACE")),
		Dir: dir, JournalDir: filepath.Join(dir, "journal"), JournalSeq: store.Seq(), Log: slog.New(slog.DiscardHandler),
		PatchEvery: 5 * time.Millisecond, PatchMost: 10 * time.Millisecond, SaveEvery: 10 * time.Millisecond, Idle: 20 * 365 * 24 * time.Hour,
		Fault: func(s events.Stage) { k.reach(string(s)) },
	})
	if err != nil {
		return fail(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- sink.Run(ctx) }()
	pace := time.NewTicker(2 * time.Millisecond)
	for i := int(store.Seq()); i < childEntries; i++ {
		e := childEntry(i)
		e.Seq, _, err = store.Add(e)
		if err = errors.Join(err, store.Flush()); err != nil {
			return fail(err)
		}
		k.reach(stageAppended)
		sink.Add(e)
		sink.Flush(e.Seq)
		<-pace.C
	}
	for deadline := time.Now().Add(testenv.Within(30 * time.Second)); ; <-pace.C {
		if st := sink.Stats(); st.Rules["oom-kill"].Happened == childEntries && st.Waiting == 0 {
			break
		}
		if time.Now().After(deadline) {
			return fail(fmt.Errorf("not all is sent: %+v", sink.Stats()))
		}
	}
	cancel()
	if err := errors.Join(<-ended, store.Close()); err != nil {
		return fail(err)
	}
	return 0
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// An agent that is killed several times at each stage reports each OOM kill once.
func TestKilledInEachStage(t *testing.T) {
	testenv.OnlyInTestAll(t)
	stages := []string{
		stageAppended, string(events.StageFolded), string(events.StageWritten), string(events.StageSaved), string(events.StageCreating),
		stageInFlight, string(events.StageCreated), string(events.StagePatching), string(events.StagePatched), string(events.StageAcked),
	}
	for _, stage := range stages {
		t.Run(stage, func(t *testing.T) {
			server := cluster.Server(t)
			a := &agent{tb: t, server: server, node: server.Node(t), client: server.Client()}
			ns, dir, kubeconfig := server.Namespace(t), t.TempDir(), server.Kubeconfig(t, server.Admin())
			kills := 0
			for _, n := range []int{1, 2, 1, 4, 7, 2, 0} {
				what := fmt.Sprint(stage, " ", n)
				if n == 0 {
					what = "none"
				}
				cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
				cmd.Env = append(os.Environ(), childEnv+"="+what, "CHILD_DIR="+dir, "CHILD_KUBECONFIG="+kubeconfig, "CHILD_NAMESPACE="+ns, "CHILD_NODE="+a.node)
				out, err := cmd.CombinedOutput()
				var exit *exec.ExitError
				switch {
				case errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL:
					kills++
				case err != nil:
					t.Fatalf("%v: %s", err, out)
				}
			}
			if kills < 2 {
				t.Errorf("killed only %d times", kills)
			}
			kinds := map[string]int{}
			for _, e := range a.onNode() {
				kinds[e.Reason] += int(e.Count)
			}
			if kinds["OOMKilling"] != childEntries || kinds["R"] != childEntries/10-1 {
				t.Errorf("Events on the Node tell of %v, want %d and %d", kinds, childEntries, childEntries/10-1)
			}
			l := a.list(ns, nil)
			if total(l) != childEntries || len(l) != childPods {
				t.Errorf("%d Events on pods tell of %d", len(l), total(l))
			}
		})
	}
}
