package pods_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/pods"
	"github.com/kernosis/kernosis/collector/probe"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

const onePod = `apiVersion: v1
kind: Pod
metadata: {name: web-0, namespace: shop}
spec:
  containers:
  - name: web
    ports: [{name: http, containerPort: 8080}]
    livenessProbe:
      httpGet: {port: http}
status: {podIP: 10.0.0.7}
`

func TestParse(t *testing.T) {
	all, err := pods.Parse("pods.yaml", []byte(onePod+`---
# nothing
---
apiVersion: v1
kind: PodList
metadata: {resourceVersion: "1"}
items:
- apiVersion: v1
  kind: Pod
  metadata: {name: db, uid: 0aa1, annotations: {kernosis.io/probes: active}}
  spec:
    containers:
    - name: pg
      readinessProbe: {exec: {command: [pg_isready]}}
  status:
    containerStatuses:
    - {name: pg, containerID: "containerd://8a1f", ready: true, started: true, state: {running: {startedAt: 2026-01-02T03:04:05Z}}}
`))
	if err != nil || len(all) != 2 {
		t.Fatalf("%d pods, %v", len(all), err)
	}
	web, db := all[0], all[1]
	if c := web.Containers[0]; len(web.UID) != 32 || web.Active || c.State != probe.Running || c.ID != "none://"+web.UID+"/web" || c.Liveness.Port != 8080 {
		t.Errorf("%+v", web)
	}
	if c := db.Containers[0]; db.UID != "0aa1" || db.Namespace != "default" || !db.Active || c.ID != "containerd://8a1f" || !c.Ready ||
		!c.StartedAt.Equal(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)) {
		t.Errorf("%+v", db)
	}
	// A changed manifest is another pod, as with kubelet's static pods; a changed status is not.
	for from, same := range map[string]bool{"10.0.0.7": true, "8080": false} {
		again, err := pods.Parse("pods.yaml", []byte(strings.ReplaceAll(onePod, from, from[:len(from)-1]+"1")))
		if err != nil || (again[0].UID == web.UID) != same {
			t.Errorf("%s: %+v, %v", from, again, err)
		}
	}
	// Its probes count, and its events have no container of a runtime.
	m := probe.New(probe.Config{})
	m.ReplacePods(all)
	if !m.Observe(probe.Key{PodUID: web.UID, Container: "web", Kind: probe.Liveness}, probe.Outcome{OK: true}) {
		t.Error("not taken")
	}
	if runtime, id := probe.SplitID(web.Containers[0].ID); runtime+id != "" {
		t.Errorf("%q, %q", runtime, id)
	}
}

// withoutColumns removes the columns from the positions in an error.
func withoutColumns(err error) string {
	return regexp.MustCompile(`(?m)^(\S+:\d+):\d+: `).ReplaceAllString(err.Error(), "$1: ")
}

func TestMistakesInAFile(t *testing.T) {
	pod := func(from, to string) string { return strings.Replace(onePod, from, to, 1) }
	for _, tc := range []struct{ text, want string }{
		{pod("livenessProbe", "livnessProbe"), `p.yaml:8: unknown field "spec.containers[0].livnessProbe"`},
		{pod("namespace: shop", "namespac: shop"), `p.yaml:3: unknown field "metadata.namespac"`},
		{pod("port: http", "port: htpp"), `p.yaml:9: pod shop/web-0: container web: liveness probe: httpGet.port: the container has no port named "htpp"`},
		{pod("status: {podIP: 10.0.0.7}", ""), "p.yaml:1: pod shop/web-0: container web: liveness probe has no address: set status.podIP"},
		{pod("10.0.0.7", "10.0.0.700"), `p.yaml:10: pod shop/web-0: status.podIPs: "10.0.0.700" is not an IP address`},
		{pod("name: web-0", "name: Web_0"), `p.yaml:3: pod shop/Web_0: metadata.name: "Web_0": a lowercase RFC 1123 subdomain`},
		{pod("{port: http}", "[1]"), "p.yaml:1: "},
		{pod("kind: Pod", "kind: Job"), `p.yaml:2: want a v1 Pod or PodList, have apiVersion "v1", kind "Job"`},
		{pod("shop}", "shop, annotations: {kernosis.io/probes: on}}"), `p.yaml:3: `},
		{pod("shop}", "shop, annotations: {kernosis.io/probes: never}}"), `p.yaml:3: kernosis.io/probes: "never": want active or observe`},
		{pod("shop}", "shop, name: twice}"), "p.yaml:3: "},
		{onePod + "---\n" + onePod, "p.yaml:12: duplicate pod shop/web-0, first on line 1"},
		{"apiVersion: v1\nkind: PodList\nitmes: []\n", "p.yaml:1: items: want a list of pods"},
		{"apiVersion: v1\nkind: PodList\nitems: a\n", "p.yaml:3: items: want a list of pods"},
		{"- a\n", "p.yaml:1: want an object"},
		{"a: &x 1\nb: *x\n", "p.yaml:1: a: anchors and aliases are not supported"},
		{"a: [\n", "p.yaml:"},
		{onePod + "---\na: \"\x1b[2J", "p.yaml:"},
	} {
		all, err := pods.Parse("p.yaml", []byte(tc.text))
		if err == nil || !strings.Contains(withoutColumns(err), tc.want) || all != nil || strings.ContainsRune(err.Error(), '\x1b') {
			t.Errorf("%s\nwant %s\nhave %v", tc.text, tc.want, err)
		}
	}
	// All mistakes at once, up to a number.
	text := strings.Repeat(pod("livenessProbe", "livnessProbe")+"---\n", 300)
	_, err := pods.Parse("p.yaml", []byte(text))
	if err == nil || strings.Count(err.Error(), "\n") != 100 || !strings.HasSuffix(err.Error(), "and 200 more") {
		t.Errorf("%v", err)
	}
	var many strings.Builder
	for i := range 1101 {
		many.WriteString(strings.Replace(onePod, "web-0", fmt.Sprint("web-", i), 1) + "---\n")
	}
	if _, err := pods.Parse("p.yaml", []byte(many.String())); err == nil || !strings.Contains(err.Error(), "more than 1100 pods") {
		t.Error(err)
	}
}

func TestAFileIsFollowed(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "pods.yaml")
	var got sets
	var log text
	f := pods.NewFile(path, got.take, log.log())
	run(t, f)
	reported := func(what string) func() bool { return func() bool { return strings.Contains(log.String(), what) } }
	named := func(what string) func() bool { return func() bool { return got.names() == what } }
	testenv.Until(t, "report of the missing file", soon, reported("no such file"))

	write(t, path, []byte(onePod))
	testenv.Until(t, "the file is read", soon, named("shop/web-0"))
	write(t, path, []byte(strings.Replace(onePod, "livenessProbe", "livnessProbe", 1)))
	testenv.Until(t, "report of the mistake", soon, reported("livnessProbe"))
	if got.names() != "shop/web-0" || !strings.Contains(log.String(), "keeping the last known ones") {
		t.Errorf("%s, %s", got.names(), log.String())
	}
	// Replaced by another file, as editors and ConfigMaps do.
	write(t, filepath.Join(dir, "new"), []byte(strings.Replace(onePod, "web-0", "web-1", 1)))
	if err := os.Rename(filepath.Join(dir, "new"), path); err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, "the other is read", soon, named("shop/web-1"))
	if !strings.Contains(log.String(), "read again") {
		t.Error("that it is good again is not reported")
	}
	sets := got.count()
	write(t, path, []byte(strings.Replace(onePod, "web-0", "web-1", 1))) // the same text
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, "second report of the missing file", soon, func() bool { return strings.Count(log.String(), "no such file") == 2 })
	if got.names() != "shop/web-1" || got.count() != sets {
		t.Errorf("%s, %d sets more", got.names(), got.count()-sets)
	}
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, "a pipe is refused", soon, reported("not a regular file"))
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	write(t, path, make([]byte, 4<<20+1))
	testenv.Until(t, "a large file is refused", soon, reported("larger than"))
	if f.Figures().Pods != 1 || f.Figures().Reads != 2 || f.Figures().Failures < 4 {
		t.Errorf("%+v", f.Figures())
	}
}

// Half of a file may be valid: it is read only once nothing changes any more.
func TestAFileThatIsBeingWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pods.yaml")
	write(t, path, []byte(onePod))
	var got sets
	f := pods.NewFile(path, got.take, nil)
	run(t, f)
	testenv.Until(t, "the file is read", soon, func() bool { return got.names() == "shop/web-0" })
	w, err := os.Create(path) // empty: no pods
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		fmt.Fprintf(w, "%s---\n", strings.Replace(onePod, "web-0", fmt.Sprint("web-", i), 1))
	}
	w.Close()
	testenv.Until(t, "all of it is read", soon, func() bool { return got.names() == "shop/web-0 shop/web-1 shop/web-2" })
	if got.count() != 2 {
		t.Errorf("%d sets, want 2", got.count())
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(onePod))
	f.Add([]byte("apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Pod}\n"))
	f.Add([]byte("a: &a [*a]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		all, err := pods.Parse("p.yaml", data)
		if err != nil {
			return
		}
		m := probe.New(probe.Config{})
		m.ReplacePods(all)
		if len(m.Pods()) != len(all) {
			t.Errorf("%d pods, %d known", len(all), len(m.Pods()))
		}
	})
}
