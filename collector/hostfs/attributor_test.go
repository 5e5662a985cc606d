package hostfs

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
)

// chain returns the levels of a path, leaf first, as in a record: the leaf has the given id, and
// each parent the next one. Names are cut at 95 bytes.
func chain(leaf uint64, path string) []Level {
	var out []Level
	names := strings.Split(strings.Trim(path, "/"), "/")
	for _, n := range slices.Backward(names) {
		name := []byte(n[:min(len(n), 95)]) // as in the kernel's record
		out = append(out, Level{ID: leaf + uint64(len(out)), Name: name, Cut: len(n) >= 95})
	}
	return out
}

func TestResolve(t *testing.T) {
	a := NewAttributor(16, nil, nil)
	path := burstable + "/cri-containerd-" + idA + ".scope"

	e := a.Resolve(7, append(chain(7, path), Level{ID: 1}), false)
	if e.Cgroup != (event.Cgroup{ID: 7, Path: path}) {
		t.Errorf("cgroup = %+v", e.Cgroup)
	}
	if e.Container == nil || *e.Container != inPod(idA, "containerd", "burstable").Container {
		t.Errorf("container = %+v", e.Container)
	}
	if again := a.Resolve(7, append(chain(7, path), Level{ID: 1}), false); again != e {
		t.Error("the same chain was resolved again")
	}
	if e := a.Resolve(7, chain(7, path)[:2], true); e.Container.QoS != "burstable" || !strings.HasPrefix(e.Cgroup.Path, "…/kubepods-burstable-pod") {
		t.Errorf("truncated: %+v %+v", e.Cgroup, e.Container)
	}
	if e := a.Resolve(1, []Level{{ID: 1}}, false); e.Cgroup.Path != "/" || e.Container != nil || e.Unit != "" {
		t.Errorf("root: %+v", e)
	}
	if e := a.Resolve(1, nil, true); e.Cgroup.Path != "…" || e.Container != nil {
		t.Errorf("nothing captured: %+v", e)
	}
	if e := a.Resolve(9, chain(9, "/system.slice/evil\x1b[31m.service"), false); strings.ContainsRune(e.Cgroup.Path+e.Unit, 0x1b) {
		t.Errorf("control character shown: %+v", e)
	}
}

// Ids are unique within one hierarchy only: the same id with another chain is another cgroup, and
// both stay cached.
func TestResolveSameID(t *testing.T) {
	a := NewAttributor(16, nil, nil)
	memory, unified := chain(5, "/docker/"+idA), chain(5, "/system.slice/ssh.service")
	m, u := a.Resolve(5, memory, false), a.Resolve(5, unified, false)
	if m.Container == nil || u.Container != nil || u.Unit != "ssh.service" {
		t.Fatalf("%+v\n%+v", m, u)
	}
	if a.Resolve(5, memory, false) != m || a.Resolve(5, unified, false) != u {
		t.Error("one of two hierarchies was forgotten")
	}
	// Same names, but other parent ids: a pod's cgroup that was created again.
	other := chain(5, "/docker/"+idA)
	other[1].ID = 99
	if a.Resolve(5, other, false) == m {
		t.Error("a chain of other ids was taken for the cached one")
	}
}

func TestResolveCompletes(t *testing.T) {
	full := burstable + "/cri-containerd-" + idA + ".scope/a/b/c/d/e/f"
	tests := []struct {
		name, found string
		err         error
		container   bool
	}{
		{"found", full, nil, true},
		{"gone", "", unix.ESTALE, false},
		{"of another hierarchy", "/docker/" + idA, nil, false},
		{"ends within a name", burstable + "/cri-containerd-" + idA + ".scope/za/b/c/d/e/f", nil, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			calls := 0
			a := NewAttributor(4, func(uint64) (string, error) { calls++; return tt.found, tt.err }, nil)
			for range 2 {
				e := a.Resolve(3, chain(3, "a/b/c/d/e/f"), true)
				if got := e.Container != nil; got != tt.container {
					t.Errorf("container = %+v", e.Container)
				}
				if want := "…/a/b/c/d/e/f"; !tt.container && e.Cgroup.Path != want {
					t.Errorf("path = %q, want %q", e.Cgroup.Path, want)
				}
			}
			if calls != 1 {
				t.Errorf("asked %d times", calls)
			}
		})
	}
}

// With runc's cgroupfs driver below kubelet's systemd driver the name has 144 bytes.
func TestResolveCutName(t *testing.T) {
	const service = "/system.slice/containerd.service"
	literal := service + "/kubepods-burstable-pod" + uidLow + ".slice:cri-containerd:"
	path := literal + idA
	pod, container := inPod("", "", "burstable").Container, inPod(idA, "containerd", "burstable").Container
	for _, tt := range []struct {
		name, path, found string
		err               error
		want              event.Container
	}{
		{"gone", path, "", unix.ESTALE, pod},
		{"found", path, path, nil, container},
		{"found, a child", path + "/init.scope", path + "/init.scope", nil, container},
		{"docker in it", path + "/docker/" + idB, "", unix.ESTALE, pod},
		{"of another hierarchy", path, "/docker/" + idB, nil, pod},
		{"another container", path, literal + idB, nil, pod},
		{"deeper than the chain", path, "/a" + path, nil, pod},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := NewAttributor(4, func(uint64) (string, error) { return tt.found, tt.err }, nil)
			e := a.Resolve(3, chain(3, tt.path), false)
			if e.Container == nil || *e.Container != tt.want || e.Unit != "" {
				t.Errorf("container %+v, unit %q, want %+v", e.Container, e.Unit, tt.want)
			}
			if want := tt.path; tt.want == container && e.Cgroup.Path != want {
				t.Errorf("path %q, want %q", e.Cgroup.Path, want)
			}
		})
	}
}

// Without captured names the id alone does not identify a cgroup if it may belong to another
// hierarchy.
func TestResolveByIDAlone(t *testing.T) {
	for _, byID := range []bool{false, true} {
		a := NewAttributor(4, func(uint64) (string, error) { return "/docker/" + idA, nil }, nil)
		a.ByID = byID
		if e := a.Resolve(5, []Level{{ID: 5}}, true); (e.Container != nil) != byID {
			t.Errorf("by id: %t: %+v of %+v", byID, e.Container, e.Cgroup)
		}
	}
}

func TestResolveDoesNotAllocate(t *testing.T) {
	a := NewAttributor(4, nil, nil)
	levels := chain(7, burstable+"/cri-containerd-"+idA+".scope")
	a.Resolve(7, levels, true)
	if n := testing.AllocsPerRun(1000, func() { a.Resolve(7, levels, true) }); n != 0 {
		t.Errorf("%v allocations a repeated chain", n)
	}
}

// A pod's first event may arrive before the pod list that has its name.
func TestResolveNamesPodsLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod, asked := "", 0
		a := NewAttributor(4, nil, func(c *event.Container) { c.PodName = pod; asked++ })
		levels := chain(7, burstable+"/cri-containerd-"+idA+".scope")
		first := a.Resolve(7, levels, false)
		for range 100 {
			a.Resolve(7, levels, false)
		}
		if asked != 1 {
			t.Errorf("asked %d times within the same second", asked)
		}
		time.Sleep(nameAgain)
		a.Resolve(7, levels, false)
		pod = "web-0"
		a.Resolve(7, levels, false)
		if asked != 2 {
			t.Errorf("asked %d times a second later", asked)
		}
		time.Sleep(nameAgain)
		named := a.Resolve(7, levels, false)
		if named.Container.PodName != "web-0" || named.Cgroup != first.Cgroup || named.Container.ID != idA {
			t.Errorf("%+v %+v", named.Cgroup, *named.Container)
		}
		if first.Container.PodName != "" {
			t.Error("an event's container was changed")
		}
		time.Sleep(time.Hour)
		if a.Resolve(7, levels, false) != named || asked != 3 {
			t.Errorf("asked %d times, the last though it was named", asked)
		}
		other := chain(8, "/docker/"+idA) // without a pod
		a.Resolve(8, other, false)
		time.Sleep(time.Hour)
		if a.Resolve(8, other, false); asked != 4 {
			t.Errorf("asked %d times, the last for a container without a pod", asked)
		}
	})
}

// The record's memory is reused after the call.
func TestResolveKeepsNoMemory(t *testing.T) {
	a := NewAttributor(4, nil, nil)
	levels := chain(7, "/docker/"+idA)
	e := a.Resolve(7, levels, false)
	for _, l := range levels {
		clear(l.Name)
	}
	if e.Cgroup.Path != "/docker/"+idA || e.Container.ID != idA {
		t.Errorf("%+v %+v", e.Cgroup, e.Container)
	}
}

func TestResolveConcurrently(t *testing.T) {
	a := NewAttributor(8, nil, nil)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range uint64(500) {
				want := fmt.Sprintf("u%d.service", i%23)
				if e := a.Resolve(i%23, chain(i%23, "/system.slice/"+want), false); e.Unit != want {
					t.Errorf("unit = %q, want %q", e.Unit, want)
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkResolve(b *testing.B) {
	levels := chain(7, burstable+"/cri-containerd-"+idA+".scope/init.scope")
	b.Run("hit", func(b *testing.B) {
		a := NewAttributor(16, nil, nil)
		b.ReportAllocs()
		for b.Loop() {
			a.Resolve(7, levels, false)
		}
	})
	b.Run("miss", func(b *testing.B) {
		a := NewAttributor(16, nil, nil)
		b.ReportAllocs()
		for id := uint64(0); b.Loop(); id++ {
			a.Resolve(id, levels, false)
		}
	})
}

func TestNameContainer(t *testing.T) {
	const (
		containerd = `{"ociVersion": "1.2.0", "annotations": {"io.kubernetes.cri.container-name": "app", "io.kubernetes.cri.sandbox-name": "web-0", "io.kubernetes.cri.sandbox-namespace": "shop"}}`
		crio       = `{"annotations": {"io.kubernetes.container.name": "app", "io.kubernetes.pod.name": "web-0", "io.kubernetes.pod.namespace": "shop"}}`
	)
	named := event.Container{ID: "c1", PodUID: "u", Name: "app", PodName: "web-0", PodNamespace: "shop"}
	bare := event.Container{ID: "c1", PodUID: "u"}
	for name, tt := range map[string]struct {
		path, text string
		of, want   event.Container
	}{
		"containerd":         {"run/containerd/io.containerd.runtime.v2.task/k8s.io/c1/config.json", containerd, bare, named},
		"k3s":                {"run/k3s/containerd/io.containerd.runtime.v2.task/k8s.io/c1/config.json", containerd, bare, named},
		"CRI-O":              {"run/containers/storage/overlay-containers/c1/userdata/config.json", crio, bare, named},
		"another container":  {"run/containerd/io.containerd.runtime.v2.task/k8s.io/c2/config.json", containerd, bare, bare},
		"a pod's group":      {"run/containerd/io.containerd.runtime.v2.task/k8s.io/config.json", containerd, event.Container{PodUID: "u"}, event.Container{PodUID: "u"}},
		"outside Kubernetes": {"run/containerd/io.containerd.runtime.v2.task/k8s.io/c1/config.json", containerd, event.Container{ID: "c1"}, event.Container{ID: "c1"}},
		"no names":           {"run/containerd/io.containerd.runtime.v2.task/k8s.io/c1/config.json", `{"annotations": null}`, bare, bare},
		"no JSON":            {"run/containerd/io.containerd.runtime.v2.task/k8s.io/c1/config.json", "x", bare, bare},
		"huge":               {"run/containerd/io.containerd.runtime.v2.task/k8s.io/c1/config.json", `{"x": "` + strings.Repeat("x", maxBundle) + `", "annotations": {"io.kubernetes.container.name": "app"}}`, bare, bare},
		"terminal escapes": {
			"run/containers/storage/overlay-containers/c1/userdata/config.json", `{"annotations": {"io.kubernetes.container.name": "a\u001bb"}}`,
			bare, event.Container{ID: "c1", PodUID: "u", Name: `a\x1bb`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			path := filepath.Join(root, tt.path)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			c := tt.of
			if New(root).NameContainer(&c); c != tt.want {
				t.Errorf("%+v, want %+v", c, tt.want)
			}
		})
	}
	c := event.Container{ID: "../c1", PodUID: "u"}
	if New(t.TempDir()).NameContainer(&c); c.Name != "" {
		t.Errorf("%+v", c)
	}
}

// Names are those of the configuration, escaped and bounded; without a whole configuration there are
// none.
func FuzzNameContainer(f *testing.F) {
	f.Add([]byte(`{"ociVersion": "1.2.0", "annotations": {"io.kubernetes.cri.container-name": "app", "io.kubernetes.cri.sandbox-name": "web-0"}}`), "app", "web-0", "shop", false)
	f.Add([]byte(`{"annotations": {"io.kubernetes.container.name": "a\u001bb", "io.kubernetes.pod.name": 7}}`), "a\x1b[2J", strings.Repeat("ä", 200), "", true)
	f.Add([]byte(`{"annotations": {"io.kubernetes.pod.namespace": "x"}`), "", "", "\u202e", false)
	root := f.TempDir()
	path := filepath.Join(root, "run/containerd/io.containerd.runtime.v2.task/k8s.io/c1/config.json")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		f.Fatal(err)
	}
	name := func(t *testing.T, config []byte) event.Container {
		if err := os.WriteFile(path, config, 0o600); err != nil {
			t.Fatal(err)
		}
		c := event.Container{ID: "c1", PodUID: "u"}
		New(root).NameContainer(&c)
		return c
	}
	f.Fuzz(func(t *testing.T, config []byte, container, pod, namespace string, crio bool) {
		c := name(t, config)
		for _, text := range []string{c.Name, c.PodName, c.PodNamespace} {
			if len(text) > 253 || display.Safe(text, 253) != text || text != "" && !json.Valid(config) {
				t.Errorf("%q: %+v", config, c)
			}
		}
		keys := []string{"io.kubernetes.cri.container-name", "io.kubernetes.cri.sandbox-name", "io.kubernetes.cri.sandbox-namespace"}
		if crio {
			keys = []string{"io.kubernetes.container.name", "io.kubernetes.pod.name", "io.kubernetes.pod.namespace"}
		}
		annotations := map[string]string{}
		for i, text := range []string{container, pod, namespace} {
			annotations[keys[i]] = strings.ToValidUTF8(text, "?")
		}
		config, err := json.Marshal(map[string]any{"process": map[string]any{"args": []string{pod}}, "annotations": annotations})
		if err != nil {
			t.Fatal(err)
		}
		safe := func(key string) string { return display.Safe(annotations[key], 253) }
		want := event.Container{ID: "c1", PodUID: "u", Name: safe(keys[0]), PodName: safe(keys[1]), PodNamespace: safe(keys[2])}
		if c := name(t, config); c != want {
			t.Errorf("%s: %+v, want %+v", config, c, want)
		}
	})
}
