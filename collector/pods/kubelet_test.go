package pods_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/cert"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/pods"
	"github.com/kernosis/kernosis/collector/probe"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// sets records the sets of pods received.
type sets struct {
	mu  sync.Mutex
	all [][]*probe.Pod
}

func (s *sets) take(pods []*probe.Pod, _ time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, pods)
}

func (s *sets) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}

// names returns the names of the pods in the latest set.
func (s *sets) names() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) == 0 {
		return "none yet"
	}
	var names []string
	for _, p := range s.all[len(s.all)-1] {
		names = append(names, p.Namespace+"/"+p.Name)
	}
	return strings.Join(names, " ")
}

// text is a log that several goroutines write to.
type text struct{ testenv.LogBuffer }

func (l *text) log() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// soon is a deadline for things that take milliseconds on an idle machine.
const soon = 20 * time.Second

// list returns an answer as kubelet encodes it. Pods are the API server's, except those whose names
// begin with "static".
func list(t testing.TB, names ...string) []byte {
	t.Helper()
	l := &corev1.PodList{}
	for _, name := range names {
		p := corev1.Pod{}
		p.Name, p.Namespace, p.UID = name, "shop", types.UID("uid-"+name)
		p.Annotations = map[string]string{"big": strings.Repeat("x", 2000), "kubernetes.io/config.source": "api"}
		if strings.HasPrefix(name, "static") {
			p.Annotations["kubernetes.io/config.source"] = "file"
		}
		p.Spec.Containers = []corev1.Container{{
			Name: "web", Env: []corev1.EnvVar{{Name: "A", Value: strings.Repeat("y", 2000)}},
			Ports:         []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
			LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromString("http")}}},
		}}
		p.Status.PodIP = "10.0.0.7"
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web", ContainerID: "containerd://" + name, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
		l.Items = append(l.Items, p)
	}
	data, err := runtime.Encode(scheme.Codecs.LegacyCodec(corev1.SchemeGroupVersion), l)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// kubelet is a server like kubelet's: TLS with a self-signed certificate, and a required token.
type kubelet struct {
	*httptest.Server
	body  atomic.Pointer[[]byte]
	token atomic.Pointer[string]
	asked atomic.Int32
	last  atomic.Pointer[time.Time] // time of the latest request
}

func serve(t *testing.T, body []byte) *kubelet {
	t.Helper()
	k := &kubelet{}
	k.body.Store(&body)
	k.token.Store(new(string))
	k.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		k.asked.Add(1)
		now := time.Now()
		k.last.Store(&now)
		want := ""
		if token := *k.token.Load(); token != "" {
			want = "Bearer " + token
		}
		switch {
		case r.URL.Path != "/pods":
			http.NotFound(w, r)
		case r.Header.Get("Authorization") != want:
			http.Error(w, "Unauthorized\x1b[2J", http.StatusUnauthorized)
		default:
			w.Write(*k.body.Load())
		}
	}))
	k.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	k.StartTLS()
	t.Cleanup(k.Close)
	return k
}

func write(t *testing.T, path string, data []byte) string {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func certificate(k *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: k.Certificate().Raw})
}

func run(t *testing.T, source interface{ Run(context.Context) error }) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- source.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestPodsOfKubelet(t *testing.T) {
	k := serve(t, list(t, "web-0", "web-1"))
	var got sets
	var log text
	dir := t.TempDir()
	token := "first"
	k.token.Store(&token)
	src, err := pods.NewKubelet(pods.KubeletConfig{
		URL: k.URL, CertFile: write(t, filepath.Join(dir, "kubelet.crt"), certificate(k.Server)),
		TokenFile: write(t, filepath.Join(dir, "token"), []byte("first\n")),
	}, got.take, log.log())
	if err != nil {
		t.Fatal(err)
	}
	src.SetEvery(5 * time.Millisecond)
	run(t, src)
	testenv.Until(t, "two pods", soon, func() bool { return got.names() == "shop/web-0 shop/web-1" })
	p := got.all[0][0]
	if c := p.Containers[0]; p.UID != "uid-web-0" || c.ID != "containerd://web-0" || c.Liveness == nil || c.Liveness.Port != 8080 || c.Liveness.Path != "/healthz" || p.Addresses[0].String() != "10.0.0.7" || p.Active {
		t.Errorf("%+v", p)
	}

	renewed := "second"
	k.token.Store(&renewed)
	testenv.Until(t, "report of the old token", soon, func() bool { return strings.Contains(log.String(), "401 Unauthorized") })
	write(t, filepath.Join(dir, "token"), []byte("second"))
	testenv.Until(t, "the new token works", soon, func() bool { return strings.Contains(log.String(), "read again") })

	bad := []byte(`{"kind":"PodList","items":[{"metadata":{"name":"web-0"`)
	before := got.count()
	k.body.Store(&bad)
	testenv.Until(t, "report of the cut answer", soon, func() bool { return strings.Contains(log.String(), "unexpected EOF") })
	if got.names() != "shop/web-0 shop/web-1" {
		t.Errorf("%s after an answer that could not be read", got.names())
	}
	good := list(t, "web-1")
	k.body.Store(&good)
	testenv.Until(t, "one pod", soon, func() bool { return got.count() > before && got.names() == "shop/web-1" })
	f := src.Figures()
	if f.Failures == 0 || f.Reads == 0 || f.Pods != 1 || f.At == 0 {
		t.Errorf("%+v", f)
	}
	// A persistent error is logged once, however often kubelet is polled.
	if n := strings.Count(log.String(), "401 Unauthorized"); n != 1 || strings.Contains(log.String(), "\x1b") {
		t.Errorf("reported %d times: %s", n, log.String())
	}
	if problems, err := testutil.CollectAndLint(src); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

func TestWhomToTrust(t *testing.T) {
	k, other := serve(t, list(t, "web-0")), serve(t, list(t, "web-0"))
	pair, err := tls.X509KeyPair(selfSigned(t))
	if err != nil {
		t.Fatal(err)
	}
	changed := httptest.NewUnstartedServer(k.Config.Handler)
	changed.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	changed.Config.ErrorLog = k.Config.ErrorLog
	changed.StartTLS()
	t.Cleanup(changed.Close)
	dir := t.TempDir()
	pinned := write(t, filepath.Join(dir, "kubelet.crt"), certificate(k.Server))
	named := strings.Replace(k.URL, "127.0.0.1", "localhost", 1) // a name that the certificate does not have
	empty := write(t, filepath.Join(dir, "empty"), nil)
	fifo := filepath.Join(dir, "folder")
	if err := os.Mkdir(fifo, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		cfg  pods.KubeletConfig
		want string // of the error; empty: none
	}{
		"nobody":                     {pods.KubeletConfig{URL: k.URL}, "certificate"},
		"a CA":                       {pods.KubeletConfig{URL: k.URL, CAFile: pinned}, ""},
		"a CA, another name":         {pods.KubeletConfig{URL: named, CAFile: pinned}, "not localhost"},
		"this very certificate":      {pods.KubeletConfig{URL: named, CertFile: pinned}, ""},
		"another certificate":        {pods.KubeletConfig{URL: changed.URL, CertFile: pinned}, "certificate is not the one in " + pinned},
		"the CA of another":          {pods.KubeletConfig{URL: changed.URL, CAFile: pinned}, "certificate"},
		"whoever answers":            {pods.KubeletConfig{URL: changed.URL, Insecure: true}, ""},
		"no certificate in the file": {pods.KubeletConfig{URL: k.URL, CAFile: empty}, "has no certificate"},
		"none to pin":                {pods.KubeletConfig{URL: k.URL, CertFile: empty}, "does not begin with a certificate"},
		"no file":                    {pods.KubeletConfig{URL: k.URL, CAFile: filepath.Join(dir, "none")}, "no such file"},
		"no regular file":            {pods.KubeletConfig{URL: k.URL, CAFile: fifo}, "not a regular file"},
		"an empty token":             {pods.KubeletConfig{URL: k.URL, Insecure: true, TokenFile: empty}, "is empty"},
		"nobody there":               {pods.KubeletConfig{URL: "https://127.0.0.1:1", Insecure: true}, "refused"},
		"another path":               {pods.KubeletConfig{URL: other.URL + "/x", Insecure: true}, "404"},
	} {
		var got sets
		src, err := pods.NewKubelet(tc.cfg, got.take, nil)
		if err != nil {
			t.Fatal(err)
		}
		err = src.Read(t.Context())
		switch {
		case tc.want == "" && (err != nil || got.names() != "shop/web-0"):
			t.Errorf("%s: %v, %s", name, err, got.names())
		case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want) || got.count() != 0):
			t.Errorf("%s: %v", name, err)
		}
	}
}

// selfSigned returns a certificate like kubelet's self-signed one.
func selfSigned(t *testing.T) (certPEM, keyPEM []byte) {
	t.Helper()
	certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey("node-7", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return certPEM, keyPEM
}

// The token is sent only to kubelet.
func TestARedirectIsNotFollowed(t *testing.T) {
	k := serve(t, list(t, "web-0"))
	there := httptest.NewServer(http.RedirectHandler(k.URL+"/pods", http.StatusFound))
	t.Cleanup(there.Close)
	var got sets
	src, err := pods.NewKubelet(pods.KubeletConfig{URL: there.URL}, got.take, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := src.Read(t.Context()); err == nil || !strings.Contains(err.Error(), "302") || k.asked.Load() != 0 {
		t.Errorf("%v, asked %d times", err, k.asked.Load())
	}
}

func TestAddressesThatAreRefused(t *testing.T) {
	type refused struct {
		URL, CAFile, TokenFile string
		Insecure               bool
	}
	for cfg, want := range map[refused]string{
		{URL: ""}: "want https://", {URL: "10.0.0.1:10250"}: "kubelet's address", {URL: "ftp://x"}: "want https://",
		{URL: "https://user@x"}: "want https://", {URL: "https://x?a"}: "want https://",
		{URL: "http://10.0.0.1:10255"}: "only a loopback address", {URL: "http://localhost:10255", TokenFile: "t"}: "needs https",
		{URL: "https://x", CAFile: "a", Insecure: true}: "want only one of",
	} {
		_, err := pods.NewKubelet(pods.KubeletConfig{URL: cfg.URL, CAFile: cfg.CAFile, TokenFile: cfg.TokenFile, Insecure: cfg.Insecure}, func([]*probe.Pod, time.Time) {}, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
	if _, err := pods.NewKubelet(pods.KubeletConfig{URL: "http://[::1]:10255"}, func([]*probe.Pod, time.Time) {}, nil); err != nil {
		t.Error(err)
	}
}

// An endless answer is not read to its end.
func TestAnEndlessAnswer(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"kind":"PodList","items":[`)
		chunk := []byte(`{"metadata":{"name":"a","namespace":"b","uid":"c"}},`)
		for {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}))
	t.Cleanup(srv.Close)
	src, err := pods.NewKubelet(pods.KubeletConfig{URL: srv.URL}, func([]*probe.Pod, time.Time) { t.Error("pods") }, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := src.Read(t.Context()); err == nil || !strings.Contains(err.Error(), "more than 1100 pods") {
		t.Error(err)
	}
}

func TestAskedSoon(t *testing.T) {
	k := serve(t, list(t, "web-0"))
	var got sets
	src, err := pods.NewKubelet(pods.KubeletConfig{URL: k.URL, Insecure: true}, got.take, nil)
	if err != nil {
		t.Fatal(err)
	}
	src.SetEvery(time.Hour)
	run(t, src)
	testenv.Until(t, "asked once", soon, func() bool { return got.count() == 1 })
	began := *k.last.Load()
	for range 100 {
		src.Ask()
	}
	testenv.Until(t, "asked again", soon, func() bool { return got.count() >= 2 })
	if took := k.last.Load().Sub(began); took < 500*time.Millisecond {
		t.Errorf("asked again after %s", took)
	}
}

// One broken pod does not block the others.
func TestABrokenPod(t *testing.T) {
	body := bytes.Replace(list(t, "web-0", "web-1"), []byte(`"port":"http"`), []byte(`"port":"htpp"`), 1)
	k := serve(t, body)
	var got sets
	var log text
	src, err := pods.NewKubelet(pods.KubeletConfig{URL: k.URL, Insecure: true}, got.take, log.log())
	if err != nil {
		t.Fatal(err)
	}
	src.SetEvery(5 * time.Millisecond)
	run(t, src)
	testenv.Until(t, "several reads", soon, func() bool { return got.count() > 3 })
	if got.names() != "shop/web-0 shop/web-1" || src.Figures().Faulty != 1 {
		t.Errorf("%s, %+v", got.names(), src.Figures())
	}
	if n := strings.Count(log.String(), `no port named \"htpp\"`); n != 1 {
		t.Errorf("reported %d times: %s", n, log.String())
	}
}

// A set replaces the previous one in the Manager.
func TestToAManager(t *testing.T) {
	m := probe.New(probe.Config{})
	sink := func(all []*probe.Pod, _ time.Time) { m.ReplacePods(all) }
	for _, names := range [][]string{{"a", "b"}, {"b", "c"}, {}} {
		k := serve(t, list(t, names...))
		src, err := pods.NewKubelet(pods.KubeletConfig{URL: k.URL, Insecure: true}, sink, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := src.Read(t.Context()); err != nil {
			t.Fatal(err)
		}
		// Each worker has a series of successes and one of failures.
		if series := testutil.CollectAndCount(m, "kernosis_probe_results_total"); len(m.Pods()) != len(names) || series != 2*len(names) {
			t.Errorf("%v: %d pods, %d series", names, len(m.Pods()), series)
		}
		for _, name := range names {
			if _, ok := m.Pod("uid-" + name); !ok {
				t.Errorf("%v: no %s", names, name)
			}
		}
	}
}

// A starting kubelet lists only static pods, or none, until it has the API server's: these stay.
func TestAStartingKubelet(t *testing.T) {
	k := serve(t, list(t, "web-0", "web-1", "static-0"))
	var reported []event.ProbeData
	m := probe.New(probe.Config{Report: func(ev *event.Event) { reported = append(reported, *ev.Probe) }})
	src, err := pods.NewKubelet(pods.KubeletConfig{
		URL: k.URL, Insecure: true,
	}, func(all []*probe.Pod, _ time.Time) { m.ReplacePods(all) }, nil)
	if err != nil {
		t.Fatal(err)
	}
	read := func(body []byte, want string) {
		t.Helper()
		k.body.Store(&body)
		if err := src.Read(t.Context()); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	fail := func() {
		m.Observe(probe.Key{PodUID: "uid-web-0", Container: "web", Kind: probe.Liveness}, probe.Outcome{Detail: event.ProbeOutcome{Verdict: event.VerdictRefused}})
	}
	all := list(t, "web-0", "web-1", "static-0")
	read(all, "")
	fail()
	for _, partial := range [][]byte{list(t, "static-0"), []byte(`{"kind":"PodList","items":null}`)} {
		read(partial, "no pod of the API server")
		if _, ok := m.Pod("uid-web-0"); !ok || len(m.Pods()) != 3 {
			t.Errorf("%d pods are known", len(m.Pods()))
		}
	}
	read(all, "")
	fail()
	if len(reported) != 2 || reported[0].Over || reported[1].Over || reported[1].Failures != 2 {
		t.Errorf("%+v", reported)
	}
}

// A starting kubelet adds the API server's pods one by one: the first list may not have all.
func TestAKubeletThatStillAddsPods(t *testing.T) {
	whole, part := list(t, "web-0", "web-1", "static-0"), list(t, "web-0", "static-0")
	for name, before := range map[string][]byte{"only static pods": list(t, "static-0"), "no answer": []byte("an error")} {
		k := serve(t, whole)
		var got sets
		src, err := pods.NewKubelet(pods.KubeletConfig{URL: k.URL, Insecure: true}, got.take, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i, step := range []struct {
			body  []byte
			taken bool
		}{{whole, true}, {before, false}, {part, false}, {whole, true}, {before, false}, {part, false}, {part, true}, {list(t, "web-0"), true}} {
			k.body.Store(&step.body)
			was := got.count()
			if err := src.Read(t.Context()); (err == nil) != step.taken || (got.count() > was) != step.taken {
				t.Errorf("%s: list %d: taken: %v, %v", name, i, !step.taken, err)
			}
		}
	}
}

// Outside a pod, kubelet may have only static pods.
func TestOnlyStaticPods(t *testing.T) {
	for _, inPod := range []bool{false, true} {
		k := serve(t, list(t, "static-0"))
		var got sets
		src, err := pods.NewKubelet(pods.KubeletConfig{URL: k.URL, Insecure: true, InPod: inPod}, got.take, nil)
		if err != nil {
			t.Fatal(err)
		}
		read := func(body []byte, taken bool) {
			t.Helper()
			k.body.Store(&body)
			before := got.count()
			if err := src.Read(t.Context()); (got.count() > before) != taken || (err == nil) != taken {
				t.Errorf("in a pod: %v: taken: %v, %v", inPod, !taken, err)
			}
		}
		static := list(t, "static-0")
		read(static, !inPod)
		read(list(t, "web-0", "static-0"), true)
		read(static, false)
		src.Pass(time.Minute)
		read([]byte("an error"), false) // kubelet may have restarted again
		read(static, false)
		src.Pass(time.Minute)
		read(static, false)
		src.Pass(time.Minute)
		read(static, !inPod)
		read(static, !inPod)
	}
}

func BenchmarkRead(b *testing.B) {
	names := make([]string, 110)
	for i := range names {
		names[i] = fmt.Sprint("web-", i)
	}
	body := list(b, names...)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(body) }))
	defer srv.Close()
	src, err := pods.NewKubelet(pods.KubeletConfig{URL: srv.URL}, func([]*probe.Pod, time.Time) {}, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if err := src.Read(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
