package chaostest_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/diagnose/controller/start"
	"github.com/kernosis/kernosis/vmtest/agenttest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// uninstall stops the controllers, uninstalls Kernosis as an administrator does, and checks that nothing is
// left.
func (w *world) uninstall() {
	w.t.Helper()
	for _, c := range w.controllers {
		c.stop()
	}
	w.other.Stop()
	w.sum.fault("uninstall")
	ctx, cancel := context.WithTimeout(w.t.Context(), testenv.Within(quietWithin))
	defer cancel()
	direct := w.server.Kubeconfig(w.t, w.server.Admin())
	out, err := exec.CommandContext(ctx, agenttest.Program(w.t), "uninstall", "--kubeconfig", direct, "--namespace", w.repairs.namespace).CombinedOutput()
	w.note("  %s", strings.ReplaceAll(strings.TrimSpace(string(out)), "\n", "\n  "))
	if err != nil {
		w.t.Errorf("uninstall: %v\n%s", err, out)
	}
	w.checked("uninstall leaves nothing in the cluster")
	for _, node := range []string{w.node, w.repairs.other} {
		n, err := w.server.Client().CoreV1().Nodes().Get(w.t.Context(), node, metav1.GetOptions{})
		w.must(err)
		w.checkNode(n)
	}
	w.checkNamespace()
	w.checked("an ended agent leaves nothing in the kernel")
	w.checkPins()
	w.checkGroups()
	testenv.UntilShown(w.t, "the kernel frees all programs and links", 10*time.Second, func() (bool, string) { // it does so with a delay
		left := slices.DeleteFunc(objects(w), func(o string) bool { return slices.Contains(w.objects, o) || heldByOthers(o) })
		return len(left) == 0, strings.Join(left, ", ")
	})
}

// checkNode: the Node is as kubelet has made it.
func (w *world) checkNode(n *corev1.Node) {
	w.t.Helper()
	for _, c := range n.Status.Conditions {
		if c.Type != corev1.NodeReady && c.Type != corev1.NodeMemoryPressure {
			w.t.Errorf("node %s has the condition %+v", n.Name, c)
		}
	}
	for key, value := range n.Annotations {
		w.t.Errorf("node %s has the annotation %s: %s", n.Name, key, value)
	}
	for _, taint := range n.Spec.Taints {
		if !strings.HasPrefix(taint.Key, "node.kubernetes.io/") { // the API server's own, at the creation
			w.t.Errorf("node %s has the taint %+v", n.Name, taint)
		}
	}
}

func (w *world) checkNamespace() {
	w.t.Helper()
	leases, err := w.server.Client().CoordinationV1().Leases(w.repairs.namespace).List(w.t.Context(), metav1.ListOptions{})
	w.must(err)
	names := slices.Collect(func(yield func(string) bool) {
		slices.Values(leases.Items)(func(l coordinationv1.Lease) bool { return yield(l.Name) })
	})
	if len(names) > 0 {
		w.t.Errorf("Leases are left: %s", strings.Join(names, " "))
	}
	_, err = w.server.Client().CoreV1().ConfigMaps(w.repairs.namespace).Get(w.t.Context(), start.StateName, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		w.t.Errorf("ConfigMap %s is left: %v", start.StateName, err)
	}
}

// checkPins checks that an agent that shut down cleanly has left no pins.
func (w *world) checkPins() {
	w.t.Helper()
	entries, err := os.ReadDir(w.agent.Pins)
	if err != nil && !os.IsNotExist(err) {
		w.t.Fatal(err)
	}
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if len(names) > 0 {
		w.t.Errorf("pins are left: %s", strings.Join(slices.Sorted(slices.Values(names)), " "))
	}
}

// checkGroups checks that no cgroup of the agent is left beside the test's own.
func (w *world) checkGroups() {
	w.t.Helper()
	for _, controller := range []string{"cpu", "memory", "pids"} {
		own, err := groupOf(controller)
		if err != nil {
			continue
		}
		left, err := filepath.Glob(filepath.Join(own, "kernosis-*"))
		w.must(err)
		left = slices.DeleteFunc(left, func(dir string) bool { return strings.HasPrefix(filepath.Base(dir), "kernosis-inject-") })
		if len(left) > 0 {
			w.t.Errorf("cgroups are left: %s", strings.Join(left, " "))
		}
	}
}

// objects returns the kernel's BPF programs and links, as the lines that a fdinfo has about them.
func objects(w *world) (all []string) {
	w.t.Helper()
	for id := ebpf.ProgramID(0); ; {
		next, err := ebpf.ProgramGetNextID(id)
		if err != nil {
			break
		}
		id = next
		all = append(all, "prog_id:\t"+strconv.Itoa(int(id)))
	}
	links := new(link.Iterator)
	defer links.Close()
	for links.Next() {
		all = append(all, "link_id:\t"+strconv.Itoa(int(links.ID)))
	}
	return all
}

// heldByOthers reports whether a process has a program or link open: this test's agent has ended.
func heldByOthers(object string) bool {
	files, _ := filepath.Glob("/proc/[0-9]*/fdinfo/*")
	for _, path := range files {
		if text, err := os.ReadFile(path); err == nil && strings.Contains(string(text), object+"\n") {
			return true
		}
	}
	return false
}
