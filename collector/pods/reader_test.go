package pods_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kernosis/kernosis/collector/pods"
)

func newReader(t *testing.T, url string) *pods.Asker {
	t.Helper()
	r, err := pods.NewAsker(pods.KubeletConfig{URL: url, Insecure: true})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func encode(t *testing.T, pods ...corev1.Pod) []byte {
	t.Helper()
	data, err := runtime.Encode(scheme.Codecs.LegacyCodec(corev1.SchemeGroupVersion), &corev1.PodList{Items: pods})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// The returned pods are complete, and in kubelet's current state.
func TestReader(t *testing.T) {
	k := serve(t, list(t, "web-0", "web-1"))
	r := newReader(t, k.URL)
	p, err := r.Pod(t.Context(), "shop", "web-1")
	if err != nil || p.UID != "uid-web-1" || len(p.Annotations["big"]) != 2000 || p.Spec.Containers[0].Env[0].Name != "A" || p.Status.PodIP != "10.0.0.7" {
		t.Fatalf("%+v, %v", p, err)
	}
	for _, name := range [][2]string{{"shop", "web-2"}, {"other", "web-1"}} {
		if _, err := r.Pod(t.Context(), name[0], name[1]); !errors.Is(err, pods.ErrNoPod) || !strings.Contains(err.Error(), "pod "+name[0]+"/"+name[1]) {
			t.Errorf("%v: %v", name, err)
		}
	}
	if all, err := r.All(t.Context()); err != nil || len(all) != 2 || all[0].Name != "web-0" {
		t.Errorf("%d pods, %v", len(all), err)
	}
	next := list(t, "web-2")
	k.body.Store(&next)
	var asked sync.WaitGroup
	for range 8 {
		asked.Go(func() {
			if all, err := r.All(t.Context()); err != nil || len(all) != 1 || all[0].Name != "web-2" {
				t.Errorf("%d pods, %v", len(all), err)
			}
		})
	}
	asked.Wait()
}

// An error response of kubelet is an error, and does not mean that a pod is gone.
func TestReaderIsRefused(t *testing.T) {
	k := serve(t, list(t, "web-0"))
	token := "another"
	k.token.Store(&token)
	r := newReader(t, k.URL)
	if _, err := r.All(t.Context()); err == nil || !strings.Contains(err.Error(), "/pods: 401 Unauthorized: Unauthorized") || strings.ContainsRune(err.Error(), '\x1b') {
		t.Error(err)
	}
	none, cut := "", encode(t, corev1.Pod{})[:20]
	k.token.Store(&none)
	k.body.Store(&cut)
	if _, err := r.Pod(t.Context(), "shop", "web-0"); err == nil || errors.Is(err, pods.ErrNoPod) || !strings.Contains(err.Error(), "kubelet's pods: ") {
		t.Error(err)
	}
	if _, err := pods.NewAsker(pods.KubeletConfig{URL: "https://user@x"}); err == nil {
		t.Error("an address with a user")
	}
}

// If several pods have one name, the newest pod of the API server wins wherever it is in the
// list: kubelet keeps a deleted pod a moment longer, and static pods can have the names of
// others.
func TestReaderOfTwoOfAName(t *testing.T) {
	pod := func(uid types.UID, source string, minute int64) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "db-0", UID: uid, Annotations: map[string]string{"kubernetes.io/config.source": source},
			CreationTimestamp: metav1.NewTime(time.Unix(60*minute, 0)),
		}}
	}
	older, newer, static := pod("older", "api", 1), pod("newer", "api", 2), pod("static", "file", 3)
	for _, c := range []struct {
		pods []corev1.Pod
		want types.UID
	}{
		{[]corev1.Pod{older, newer}, "newer"},
		{[]corev1.Pod{newer, older, static}, "newer"},
		{[]corev1.Pod{static, older}, "older"},
		{[]corev1.Pod{static}, "static"},
	} {
		p, err := newReader(t, serve(t, encode(t, c.pods...)).URL).Pod(t.Context(), "shop", "db-0")
		if err != nil || p.UID != c.want {
			t.Errorf("%+v, %v; want %s", p, err, c.want)
		}
	}
}

func TestVerified(t *testing.T) {
	for _, c := range []struct {
		cfg  pods.KubeletConfig
		want bool
	}{
		{pods.KubeletConfig{URL: "https://10.0.0.3:10250"}, true},
		{pods.KubeletConfig{URL: "https://10.0.0.3:10250", CertFile: "f"}, true},
		{pods.KubeletConfig{URL: "https://10.0.0.3:10250", Insecure: true}, false},
		{pods.KubeletConfig{URL: "http://127.0.0.1:10255"}, false},
	} {
		if c.cfg.Verified() != c.want {
			t.Errorf("%+v: %v", c.cfg, c.cfg.Verified())
		}
	}
}
