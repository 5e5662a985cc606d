package kubetest_test

import (
	"bytes"
	"fmt"
	"os"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

var cluster kubetest.Shared

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		child()
		return
	}
	os.Exit(cluster.Run(m))
}

func TestTheServerIsOfThePinnedVersion(t *testing.T) {
	mod, err := os.ReadFile("../../.tools/kubernetes/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	version, err := cluster.Server(t).Client().Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(mod, []byte("require k8s.io/kubernetes "+version.GitVersion+"\n")) {
		t.Errorf("the server is %s", version.GitVersion)
	}
}

func TestUsersMayDoWhatRBACSays(t *testing.T) {
	s := cluster.Server(t)
	node := s.Node(t)
	kubelet := kubetest.Clientset(t, s.Config(t, "system:node:"+node, "system:nodes"))
	if _, err := kubelet.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{}); err != nil {
		t.Errorf("its node's kubelet: %v", err)
	}
	nobody := kubetest.Clientset(t, s.Config(t, "nobody"))
	if _, err := nobody.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a user without any role: %v", err)
	}
	fromFile, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig(t, s.Admin()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kubetest.Clientset(t, fromFile).CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{}); err != nil {
		t.Errorf("through a kubeconfig: %v", err)
	}
}

func TestATokenNamesItsNode(t *testing.T) {
	s := cluster.Server(t)
	ns, node := s.Namespace(t), s.Node(t)
	s.Pod(t, ns, "agent", node)
	of := kubetest.TokenFor{Namespace: ns, ServiceAccount: "default", Pod: "agent"}
	me, err := kubetest.Clientset(t, s.WithToken(s.Token(t, of))).AuthenticationV1().SelfSubjectReviews().
		Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := me.Status.UserInfo.Extra["authentication.kubernetes.io/node-name"]; len(got) != 1 || got[0] != node {
		t.Errorf("the token says node %v, want %s", got, node)
	}
	// The token expires with the pod. The server may notice that a moment later, and caches
	// reviewed tokens for ten seconds, so this test uses a token that it has not reviewed.
	token := s.Token(t, of)
	s.DeletePod(t, ns, "agent")
	gone := kubetest.Clientset(t, s.WithToken(token)).CoreV1().Nodes()
	testenv.UntilShown(t, "the token of a pod that is gone is refused", 20*time.Second, func() (bool, string) {
		_, err := gone.List(t.Context(), metav1.ListOptions{})
		return apierrors.IsUnauthorized(err), fmt.Sprint(err)
	})
}

func TestOutages(t *testing.T) {
	testenv.OnlyInTestAll(t)
	s := kubetest.New(t, kubetest.Options{})
	node := s.Node(t)
	short := s.Admin()
	short.Timeout = 500 * time.Millisecond
	impatient := kubetest.Clientset(t, short)
	get := func() error {
		_, err := impatient.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
		return err
	}
	for _, end := range []func(testing.TB){s.Stop, s.Kill} {
		address := s.Address()
		end(t)
		if get() == nil {
			t.Error("an answer of a server that is stopped")
		}
		s.Start(t)
		if err := get(); err != nil {
			t.Errorf("after a start: %v", err)
		}
		if s.Address() != address {
			t.Errorf("address %s, was %s", s.Address(), address)
		}
	}
	s.Pause(t)
	if err := get(); err == nil || !os.IsTimeout(err) {
		t.Errorf("while it is paused: %v, want a time-out", err)
	}
	s.Resume(t)
	if err := get(); err != nil {
		t.Errorf("after the pause: %v", err)
	}
}

func TestWritesAreCounted(t *testing.T) {
	// A separate server: nothing else writes to it once it has settled.
	s := kubetest.New(t, kubetest.Options{})
	ns := s.Namespace(t)
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Data: map[string]string{"a": string(make([]byte, 4096))}}
	before, asked := s.EtcdWrites(t), s.APIMetrics(t)
	if _, err := s.Client().CoreV1().ConfigMaps(ns).Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	after := s.EtcdWrites(t)
	if after.Puts <= before.Puts || after.PutBytes < before.PutBytes+4096 || after.Size <= 0 {
		t.Errorf("before %+v, after %+v", before, after)
	}
	of := []string{"verb", "POST", "resource", "configmaps", "code", "201"}
	if n := s.APIMetrics(t).Sum("apiserver_request_total", of...) - asked.Sum("apiserver_request_total", of...); n != 1 {
		t.Errorf("%v requests counted, want 1", n)
	}
}

func TestOptionsReachTheServer(t *testing.T) {
	_, err := kubetest.Start(t.Context(), kubetest.Options{Flags: []string{"--no-such-flag"}})
	if err == nil || !bytes.Contains([]byte(err.Error()), []byte("no-such-flag")) {
		t.Errorf("error: %v, want one that tells the end of the log", err)
	}
}
