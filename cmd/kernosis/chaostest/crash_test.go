package chaostest_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/vmtest/agenttest"
)

// crashes returns acts that interrupt the agent, or take something away from it.
func crashes() []act {
	return []act{
		{"kill -9", 4, func(w *world, r *rand.Rand) { w.killAgent(r, nil) }},
		{"kill -9 before a request", 2, func(w *world, r *rand.Rand) {
			w.killAgent(r, func(kill func()) { w.atRequest(kill, false) })
		}},
		{"kill -9 behind a request", 2, func(w *world, r *rand.Rand) {
			w.killAgent(r, func(kill func()) { w.atRequest(kill, true) })
		}},
		{"kill -9 and a torn journal", 2, func(w *world, r *rand.Rand) {
			w.killAgent(r, nil, func() { w.tear(r) })
		}},
		{"kill -9 and a torn snapshot", 1, func(w *world, r *rand.Rand) {
			w.killAgent(r, nil, func() { w.tearSnapshot(r) })
		}},
		{"kill -9 and a bit of the journal", 2, func(w *world, r *rand.Rand) {
			w.killAgent(r, nil, func() { w.flip(r, isSegment) })
		}},
		{"kill -9 and a bit of the snapshot", 1, func(w *world, r *rand.Rand) {
			w.killAgent(r, nil, func() { w.flip(r, isSnapshot) })
		}},
		{"kill -9 and a bit of a checkpoint", 1, func(w *world, r *rand.Rand) {
			w.killAgent(r, nil, func() { w.flip(r, isCheckpoint) })
		}},
		{"kill -9 and another version", 3, func(w *world, r *rand.Rand) { w.killAgent(r, nil, w.otherVersion) }},
		{"restart as another version", 2, func(w *world, _ *rand.Rand) { w.restart(w.otherVersion) }},
		{"ring overflows", 2, func(w *world, _ *rand.Rand) { w.overflow() }},
		{"kill -9 of both controllers", 1, func(w *world, _ *rand.Rand) {
			for _, c := range w.controllers {
				c.signal(syscall.SIGKILL)
			}
		}},
		{"namespace is deleted", 1, func(w *world, _ *rand.Rand) { w.deleteNamespace() }},
		{"kill -9 of the controller", 2, func(w *world, r *rand.Rand) {
			w.controllers[r.IntN(len(w.controllers))].signal(syscall.SIGKILL)
		}},
		{"restart", 2, func(w *world, _ *rand.Rand) { w.restart() }},
		{"node is deleted", 1, func(w *world, _ *rand.Rand) { w.deleteNode() }},
		{"log is rotated", 2, func(w *world, r *rand.Rand) {
			w.must(os.Rename(w.log, fmt.Sprintf("%s.%d", w.log, r.Uint32())))
			w.write("")
		}},
	}
}

// atRequestFor is how long a kill waits for a request.
const atRequestFor = 2 * time.Second

// atRequest kills the agent at its next write to the API server: before the API server gets it, or
// after that but before the agent gets the answer. It returns after the kill, or when nothing was
// written for atRequestFor.
func (w *world) atRequest(kill func(), behind bool) {
	if w.harmed[network] != nil {
		return
	}
	var once sync.Once
	done := make(chan struct{})
	w.proxy.Do(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet {
			return false
		}
		once.Do(func() {
			defer close(done)
			if behind {
				defer func() { _ = recover() }() // the handler panics to cut the connection
				defer kill()
				w.proxy.LoseAnswer(r)
			}
			kill()
		})
		panic(http.ErrAbortHandler)
	})
	select {
	case <-done:
		w.note("  at a request")
	case <-time.After(atRequestFor):
	}
	w.proxy.Do(nil)
}

// killAgent kills the agent, at once or when at calls kill, and restarts it after a while, in which
// meanwhile may change its files.
func (w *world) killAgent(r *rand.Rand, at func(kill func()), meanwhile ...func()) {
	w.t.Helper()
	w.heal(process)
	if at != nil {
		at(func() { w.agent.Signal(syscall.SIGKILL) })
	}
	w.endAgent()
	for _, do := range meanwhile {
		do()
	}
	for range r.IntN(3) {
		w.kill()
	}
	w.hiccups(r.IntN(5))
	w.start()
}

// endAgent kills the agent, and waits for its end.
func (w *world) endAgent() {
	w.t.Helper()
	w.agent.Signal(syscall.SIGKILL)
	w.alive = false
	w.losses.forgets()
	w.losses.lags()
	w.volatile = false
	if w.blocked {
		w.heal(disk) // a thread that waits for the disk can't end
	}
	w.agent.Kill()
}

// otherVersion lets the next start be one of the earlier version, or of the current one again.
func (w *world) otherVersion() {
	switch {
	case w.earlier == "":
	case w.agent.Path == w.earlier:
		w.agent.Path = agenttest.Program(w.t)
	default:
		w.agent.Path = w.earlier
	}
	w.note("  %s", filepath.Base(w.agent.Path))
}

// restart shuts the agent down cleanly and starts it again; meanwhile may change its files.
func (w *world) restart(meanwhile ...func()) {
	w.t.Helper()
	w.heal(process)
	w.heal(disk)                              // else it ends only when the harm to the disk does
	w.await("answer", func() (bool, string) { // an agent that has just been started does not handle SIGTERM yet
		_, err := w.get(w.t.Context(), "/metrics")
		return err == nil, fmt.Sprint(err)
	})
	w.sample()
	w.agent.Stop()
	w.alive = false
	if w.volatile {
		w.losses.forgets()
	} else {
		w.losses.saved()
	}
	for _, do := range meanwhile {
		do()
	}
	w.start()
	if w.agent.Path != w.earlier { // which may lack sources
		w.agent.WaitSources(len(w.agent.Entries()))
	}
}

// deleteNode deletes the Node and creates it again, as if kubelet registered again.
func (w *world) deleteNode() {
	w.t.Helper()
	if w.away {
		return
	}
	w.must(w.server.Client().CoreV1().Nodes().Delete(w.t.Context(), w.node, metav1.DeleteOptions{}))
	w.server.NodeNamed(w.t, w.node)
	w.repairs.label(w.node)
}

// deleteNamespace deletes the namespace of agent and controllers with all its objects, and creates it again. It does
// what the namespace controller does, which does not run here.
func (w *world) deleteNamespace() {
	w.t.Helper()
	if w.away {
		return
	}
	ctx, name, all := w.t.Context(), w.repairs.namespace, metav1.ListOptions{}
	kube, now := w.server.Client(), metav1.DeleteOptions{}
	w.must(kube.CoreV1().Namespaces().Delete(ctx, name, now))
	w.repairs.forget()
	w.must(errors.Join(
		w.repairs.client.DeleteAllOf(ctx, &v1alpha1.Diagnosis{}, client.InNamespace(name)),
		kube.CoordinationV1().Leases(name).DeleteCollection(ctx, now, all),
		kube.CoreV1().ConfigMaps(name).DeleteCollection(ctx, now, all),
		kube.CoreV1().Events(name).DeleteCollection(ctx, now, all),
	))
	w.await("end of the namespace", func() (bool, string) {
		ns, err := kube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			ns.Spec.Finalizers = nil
			_, err = kube.CoreV1().Namespaces().Finalize(ctx, ns, metav1.UpdateOptions{})
		}
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
	_, err := kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	w.must(err)
}
