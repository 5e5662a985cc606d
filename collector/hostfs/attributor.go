package hostfs

import (
	"bytes"
	"encoding/json"
	"hash/maphash"
	"path/filepath"
	"slices"
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
)

// maxLevels bounds the levels used of a chain; BPF programs capture six.
const maxLevels = 16

// Level is one cgroup of a chain captured in the kernel.
type Level struct {
	ID   uint64 // 64-bit kernfs id
	Name []byte // kernfs_node.name; empty: the root
	Cut  bool   // Name may be only the beginning
}

// Attributed is a cgroup with its owner. Its events share it: it must not be changed.
type Attributed struct {
	Cgroup    event.Cgroup
	Container *event.Container // nil outside containers
	Unit      string

	// The chain it was made from: a cache hit must match exactly.
	chain     []Level
	truncated bool

	asked time.Time // when its names were last looked up
}

// attributionKey needs more than the leaf's id: kernfs ids are unique within one hierarchy only,
// and a record carries those of two (memory and default).
type attributionKey struct {
	leaf  uint64
	names uint64
}

// Attributor resolves cgroup chains to owners and caches them, so that a repeated event allocates
// nothing. It is safe for concurrent use.
type Attributor struct {
	// ByID: cgroups without captured names belong to the hierarchy that find searches. Set it
	// before the first Resolve.
	ByID bool

	seed  maphash.Seed
	cache *lru.Cache[attributionKey, *Attributed]
	find  func(id uint64) (path string, err error)
	name  func(*event.Container)
}

// nameAgain is how long a missing pod name is cached: the pod list may follow the first event.
const nameAgain = time.Second

// NewAttributor returns an Attributor that caches size cgroups, at about 1 KiB each. find, which
// may be nil, returns the whole path of a cgroup that still exists (see [CgroupFinder]); it is
// called once for a chain that does not identify the owner. name, which may be nil, adds the names
// of a container ([FS.NameContainer]); it is called again while the pod's name is missing.
func NewAttributor(size int, find func(id uint64) (string, error), name func(*event.Container)) *Attributor {
	cache, err := lru.New[attributionKey, *Attributed](max(size, 1))
	if err != nil {
		panic(err) // only for a size below 1
	}
	return &Attributor{seed: maphash.MakeSeed(), cache: cache, find: find, name: name}
}

// Resolve returns the owner of a chain of cgroups, leaf first. truncated says that there are levels
// above the last one. Resolve does not keep the levels' memory.
func (a *Attributor) Resolve(leafID uint64, levels []Level, truncated bool) *Attributed {
	if len(levels) > maxLevels {
		levels, truncated = levels[:maxLevels], true
	}
	key := attributionKey{leaf: leafID}
	for i := range levels {
		key.names = key.names*31 + maphash.Bytes(a.seed, levels[i].Name)
	}
	e, ok := a.cache.Get(key)
	switch {
	case !ok || !e.isOf(levels, truncated):
		e = a.resolve(leafID, levels, truncated)
	case a.name != nil && e.nameless() && time.Since(e.asked) >= nameAgain:
		again, c := *e, *e.Container // copies: events may point to these
		a.name(&c)
		again.Container, again.asked = &c, time.Now()
		e = &again
	default:
		return e
	}
	a.cache.Add(key, e)
	return e
}

func (a *Attributor) resolve(leafID uint64, levels []Level, truncated bool) *Attributed {
	e, partial := &Attributed{chain: slices.Clone(levels), truncated: truncated}, truncated
	for i := range levels {
		e.chain[i].Name = bytes.Clone(levels[i].Name)
		partial = partial || levels[i].Cut
	}
	path := chainPath(e.chain, truncated)
	owner, _ := ParseCgroupPath(path)
	if partial && a.find != nil && (owner.Container.ID == "" || owner.Container.QoS == "") {
		full, err := a.find(leafID)
		if err == nil && e.fits(full) && (path != "…" || a.ByID) {
			path = full
			owner, _ = ParseCgroupPath(path)
		}
	}
	e.Cgroup = event.Cgroup{ID: leafID, Path: display.Safe(path, maxCgroupPath)}
	if owner.Container != (event.Container{}) {
		if a.name != nil {
			a.name(&owner.Container)
			e.asked = time.Now()
		}
		e.Container = &owner.Container
	}
	e.Unit = owner.Unit
	return e
}

// fits reports whether a path may be the chain's: its id may belong to another hierarchy.
func (e *Attributed) fits(path string) bool {
	for _, c := range e.chain {
		name := string(c.Name)
		if name == "" || name == "/" {
			continue
		}
		i := strings.LastIndexByte(path, '/')
		if i < 0 || path[i+1:] != name && !(c.Cut && strings.HasPrefix(path[i+1:], name)) {
			return false
		}
		path = path[:i]
	}
	return e.truncated || path == ""
}

// nameless reports whether the pod's name is missing.
func (e *Attributed) nameless() bool {
	return e.Container != nil && e.Container.PodUID != "" && e.Container.PodName == ""
}

// isOf reports whether e was made from this chain, without allocating.
func (e *Attributed) isOf(levels []Level, truncated bool) bool {
	if e.truncated != truncated || len(e.chain) != len(levels) {
		return false
	}
	for i := range levels {
		c, l := &e.chain[i], &levels[i]
		if c.ID != l.ID || c.Cut != l.Cut || !bytes.Equal(c.Name, l.Name) {
			return false
		}
	}
	return true
}

// chainPath joins a leaf-first chain into a path.
func chainPath(chain []Level, truncated bool) string {
	var b strings.Builder
	if truncated {
		b.WriteString("…")
	}
	for _, c := range slices.Backward(chain) {
		if name := string(c.Name); name != "" && name != "/" {
			b.WriteString("/" + name)
		}
	}
	if b.Len() == 0 {
		return "/"
	}
	return b.String()
}

// maxBundle bounds a container's config.json, in bytes. Real ones have some 10 KiB.
const maxBundle = 1 << 20

// bundles returns the folders in which containerd, k3s's containerd and CRI-O keep the
// configuration of a running container, as the parts before and after its id.
func bundles() [][2]string {
	return [][2]string{
		{"/run/containerd/io.containerd.runtime.v2.task/k8s.io", ""},
		{"/run/k3s/containerd/io.containerd.runtime.v2.task/k8s.io", ""},
		{"/run/containers/storage/overlay-containers", "userdata"},
	}
}

// NameContainer adds the names of a container and its pod, as kubelet gave them to the runtime. It
// leaves them empty if no known runtime has them: outside Kubernetes, or if the agent has no access
// to /run. The folder of a terminated container may be gone.
func (f FS) NameContainer(c *event.Container) {
	if c.ID == "" || c.PodUID == "" || filepath.Base(c.ID) != c.ID {
		return
	}
	for _, dir := range bundles() {
		var config struct {
			Annotations map[string]string `json:"annotations"`
		}
		text, err := f.readCut(filepath.Join(dir[0], c.ID, dir[1], "config.json"), maxBundle)
		if err != nil || json.Unmarshal(text, &config) != nil {
			continue
		}
		name := func(keys ...string) string {
			for _, key := range keys {
				if text := config.Annotations[key]; text != "" {
					return display.Safe(text, 253)
				}
			}
			return ""
		}
		c.Name = name("io.kubernetes.cri.container-name", "io.kubernetes.container.name")
		c.PodName = name("io.kubernetes.cri.sandbox-name", "io.kubernetes.pod.name")
		c.PodNamespace = name("io.kubernetes.cri.sandbox-namespace", "io.kubernetes.pod.namespace")
		return
	}
}
