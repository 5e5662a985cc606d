package conditions

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/transport"

	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// The states of one condition, for tests.
func deadlocked() problem.Condition { return cond("KernelDeadlock", problem.True, "TaskHung") }
func healthy() problem.Condition {
	return cond("KernelDeadlock", problem.False, "KernelHasNoDeadlock")
}

func TestConditionsAreWrittenAndNothingElseIs(t *testing.T) {
	r := start(t, cluster.Server(t), nil)
	before := r.status("Ready")
	blind := cond("DiskStalled", problem.Unknown, "SourceUnavailable")
	r.set(deadlocked(), blind)
	got := r.waitStatus(deadlocked())
	if !got.LastTransitionTime.Time.Equal(deadlocked().LastTransition) {
		t.Errorf("lastTransitionTime %s, want the detector's", got.LastTransitionTime)
	}
	if time.Since(got.LastHeartbeatTime.Time) > time.Minute {
		t.Errorf("lastHeartbeatTime %s", got.LastHeartbeatTime)
	}
	if c := r.waitStatus(blind); c.Status != corev1.ConditionUnknown {
		t.Errorf("a blind source's condition is %s", c.Status)
	}
	// The answer confirms the write: both conditions in one write.
	r.waitAcked()
	r.mu.Lock()
	acks := r.acks
	r.mu.Unlock()
	if len(acks) != 1 || len(acks[0].Written) != 2 || acks[0].Written[1] != deadlocked() || acks[0].Heartbeat || time.Since(acks[0].At) > deadline {
		t.Errorf("acknowledged: %+v", acks)
	}
	if after := r.status("Ready"); after == nil || *after != *before {
		t.Errorf("Ready is %+v, was %+v", after, before)
	}
	s := r.Stats()
	if s.Writes[Written] != 1 || s.Bytes == 0 || s.Retries != 0 || s.Flips != 0 || s.LastAcked.IsZero() || s.Pending || !s.NodeExists {
		t.Errorf("stats: %+v", s)
	}
}

func TestTheFirstChangeGoesAtOnceAndAFloodInOneWriteLater(t *testing.T) {
	coalesce := min(testenv.Within(2*time.Second), 6*time.Second)
	r := start(t, cluster.Server(t), func(c *Config) { c.Coalesce = coalesce })
	r.set(healthy())
	r.waitStatus(healthy())
	r.waitAcked()                                                                      // the API has it before its answer arrives
	<-time.After(time.Until(r.Stats().LastAcked.Add(coalesce + 100*time.Millisecond))) // the pause itself is measured
	began := time.Now()
	r.set(deadlocked())
	r.waitAcked()
	if took := r.Stats().LastAcked.Sub(began); took > coalesce*3/4 {
		t.Errorf("the first change took %s", took)
	}
	for i := range 1000 {
		c := deadlocked()
		c.Message = strings.Repeat("x", i)
		r.set(c)
	}
	last := healthy()
	r.set(last)
	most := 3 + int(time.Since(began)/coalesce) // a busy machine may need that long for the flood
	r.waitStatus(last)
	if took := time.Since(began); took < coalesce {
		t.Errorf("the flood was written after %s", took)
	}
	r.waitAcked()
	if n := int(r.Stats().Writes[Written]); n < 3 || n > most {
		t.Errorf("%d writes of 1,003 changes, want 3 to %d", n, most)
	}
}

func TestAnIdlePatcherWritesNothing(t *testing.T) {
	p, config := newProxy(t, cluster.Server(t))
	r := start(t, cluster.Server(t), func(c *Config) { c.Client = kubetest.Clientset(t, config) })
	r.set(healthy())
	r.waitStatus(healthy())
	r.waitAcked()
	for range 100 {
		r.set(healthy()) // no change
	}
	overwrite(t, cluster.Server(t).Client(), r.node, "kubelet", `{"type":"Ready","status":"True","reason":"KubeletReady","message":"other"}`)
	<-time.After(2 * time.Second) // the time of the observation
	if n := len(p.sent()); n != 1 {
		t.Errorf("%d patches, want 1", n)
	}
}

func TestHeartbeats(t *testing.T) {
	r := start(t, cluster.Server(t), func(c *Config) { c.Heartbeat = 500 * time.Millisecond })
	r.set(healthy())
	first := r.waitStatus(healthy())
	r.waitFor("heartbeats", func() bool { return r.Stats().Heartbeats >= 4 })
	later := r.status("KernelDeadlock")
	if !later.LastHeartbeatTime.After(first.LastHeartbeatTime.Time) {
		t.Errorf("lastHeartbeatTime stays at %s", later.LastHeartbeatTime)
	}
	if !later.LastTransitionTime.Equal(&first.LastTransitionTime) {
		t.Errorf("lastTransitionTime was %s, is %s", first.LastTransitionTime, later.LastTransitionTime)
	}
	if s := r.Stats(); s.Writes[Written] > s.Heartbeats+1 || s.Flips != 0 {
		t.Errorf("stats: %+v", s)
	}
}

func TestARestartTakesOverWhatTheAPIHas(t *testing.T) {
	server := cluster.Server(t)
	p, config := newProxy(t, server)
	p.do(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Has("watch") {
			<-time.After(2 * readBackFor) // a busy API server, as when many nodes start
		}
		return false
	})
	node := server.Node(t)
	since := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	overwrite(t, server.Client(), node, FieldManager,
		`{"type":"KernelDeadlock","status":"True","reason":"TaskHung","message":"message of TaskHung","lastTransitionTime":"2026-01-01T00:00:00Z"},
		 {"type":"ReadonlyFilesystem","status":"True","reason":"FilesystemIsReadOnly","message":"x"},
		 {"type":"DiskStalled","status":"True","reason":"Stalled","message":"x"}`)
	r := start(t, server, func(c *Config) { c.Client, c.Node = kubetest.Clientset(t, config), node })
	// The detector reports the first, does not know the second yet, and has not reported the
	// third.
	r.set(deadlocked(), cond("ReadonlyFilesystem", problem.Unknown, "SourceNotStarted"))
	r.waitFor("the Node is seen", func() bool { return r.Stats().NodeExists })
	r.waitAcked()
	if n := len(p.sent()); n != 0 {
		t.Errorf("%d patches of what the API has already", n)
	}
	for _, name := range []string{"ReadonlyFilesystem", "DiskStalled"} {
		if c := r.status(name); c == nil || c.Status != corev1.ConditionTrue {
			t.Errorf("%s was reset: %+v", name, c)
		}
	}
	// Another message with the same status: the transition time stays.
	c := deadlocked()
	c.Message = "another task"
	r.set(c, cond("ReadonlyFilesystem", problem.False, "FilesystemIsNotReadOnly"))
	if got := r.waitStatus(c); !got.LastTransitionTime.Time.Equal(since) {
		t.Errorf("lastTransitionTime %s, want %s", got.LastTransitionTime, since)
	}
	// Now the detector knows the second.
	r.waitStatus(cond("ReadonlyFilesystem", problem.False, "FilesystemIsNotReadOnly"))
}

func TestTypesThatNobodySetsAreRemoved(t *testing.T) {
	server := cluster.Server(t)
	node, state := server.Node(t), filepath.Join(t.TempDir(), "conditions.json")
	with := func(c *Config) { c.Node, c.StateFile = node, state }
	r := start(t, server, with)
	old, taken := cond("OldType", problem.False, "Fine"), cond("TakenType", problem.False, "Fine")
	r.set(healthy(), old, taken, cond("Reloaded", problem.False, "Fine"))
	r.waitStatus(old)
	// A rule file was removed at runtime.
	r.set(healthy(), old, taken)
	r.waitFor("Reloaded is removed", func() bool { return r.status("Reloaded") == nil })
	r.stop()
	overwrite(t, server.Client(), node, "somebody", `{"type":"TakenType","status":"True","reason":"Theirs","message":"x"}`)

	// Other types while it was not running. An untrusted list must not remove Kubernetes' own
	// types.
	r = start(t, server, with)
	r.Retire([]string{"Ready", "MemoryPressure", "NeverWritten"})
	<-time.After(200 * time.Millisecond) // nothing is removed before the detector's first list
	if r.status("OldType") == nil {
		t.Error("removed before the detector's first list")
	}
	r.set(healthy())
	r.waitFor("OldType is removed", func() bool { return r.status("OldType") == nil })
	r.waitAcked()
	for _, name := range []string{"Ready", "MemoryPressure", "TakenType", "KernelDeadlock"} {
		if r.status(name) == nil {
			t.Errorf("%s was removed", name)
		}
	}
	text, err := os.ReadFile(state)
	if err != nil || strings.Contains(string(text), "OldType") || !strings.Contains(string(text), "KernelDeadlock") {
		t.Errorf("state: %s, %v", text, err)
	}
	if n := r.Stats().Removed; n != 1 {
		t.Errorf("%d removed, want 1", n)
	}
}

func TestANodeThatIsDeletedAndMadeAnew(t *testing.T) {
	server := cluster.Server(t)
	r := start(t, server, nil)
	r.set(deadlocked())
	r.waitStatus(deadlocked())
	for range 2 {
		if err := server.Client().CoreV1().Nodes().Delete(t.Context(), r.node, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		r.waitFor("the Node is missed", func() bool { return !r.Stats().NodeExists && r.Stats().Writes[NodeMissing] > 0 })
		server.NodeNamed(t, r.node)
		r.waitStatus(deadlocked())
	}
	if s := r.Stats(); s.Flips != 0 || s.Contested != 0 {
		t.Errorf("stats: %+v", s)
	}
}

func TestANodeThatIsNotThereYet(t *testing.T) {
	server := cluster.Server(t)
	r := start(t, server, func(c *Config) { c.Node = "late-" + strings.ToLower(t.Name()) })
	r.set(deadlocked())
	r.waitFor("the Node is missed", func() bool { return r.Stats().Writes[NodeMissing] > 1 })
	server.NodeNamed(t, r.node)
	made := time.Now()
	r.waitStatus(deadlocked())
	if took := time.Since(made); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
}

// The documented permissions are sufficient.
func TestTheRightsItNeeds(t *testing.T) {
	server := cluster.Server(t)
	ns, node := server.Namespace(t), server.Node(t)
	server.Pod(t, ns, "agent", node)
	rbac := server.Client().RbacV1()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: ns}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"watch"}},
		{APIGroups: []string{""}, Resources: []string{"nodes/status"}, Verbs: []string{"patch"}},
	}}
	if _, err := rbac.ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: ns}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: ns},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: ns, Name: "default"}},
	}
	if _, err := rbac.ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// The token is a file, as in a pod. The first token is invalid, like an expired one; then
	// kubelet writes a new one.
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("bad"), 0o600); err != nil {
		t.Fatal(err)
	}
	config := server.WithToken("")
	// BearerTokenFile would keep using the invalid token for up to a minute.
	config.WrapTransport = transport.ResettableTokenSourceWrapTransport(transport.NewCachedFileTokenSource(file))
	r := start(t, server, func(c *Config) { c.Client, c.Node = kubetest.Clientset(t, config), node })
	r.set(deadlocked())
	r.waitFor("it is refused", func() bool { return r.Stats().Writes[Unauthorized] > 0 })
	token := server.Token(t, kubetest.TokenFor{Namespace: ns, ServiceAccount: "default", Pod: "agent"})
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	r.waitStatus(deadlocked())
	r.waitFor("a watch", func() bool { return r.Stats().Watches > 0 })
}
