package main

import (
	"archive/tar"
	"bytes"
	"maps"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

func TestArchive(t *testing.T) {
	l := readLayout(t)
	top, index := l.top(t)

	// containerd uses the full name as is, and kubelet asks it for the name with the default
	// registry; other tools use the tag.
	name := top.Annotations["io.containerd.image.name"]
	if host, rest, _ := strings.Cut(name, "/"); rest != "kernosis/kernosis:"+testTag || !strings.Contains(host, ".") {
		t.Errorf("the image's name is %q", name)
	}
	if got := top.Annotations["org.opencontainers.image.ref.name"]; got != testTag {
		t.Errorf("its tag is %q", got)
	}
	var platforms []string
	for _, m := range index.Manifests {
		platforms = append(platforms, m.Platform.OS+"/"+path.Join(m.Platform.Architecture, m.Platform.Variant))
	}
	if want := []string{"linux/amd64", "linux/arm64/v8"}; !slices.Equal(platforms, want) {
		t.Errorf("platforms %v, want %v", platforms, want)
	}
	for _, arch := range []string{"amd64", "arm64"} {
		l.image(t, arch)
	}
	for f := range l.files {
		if !l.used[f] {
			t.Errorf("no descriptor refers to %s", f)
		}
	}
}

func TestConfiguration(t *testing.T) {
	l := readLayout(t)
	_, index := l.top(t)
	about := map[string]string{
		"org.opencontainers.image.title":       "kernosis",
		"org.opencontainers.image.description": "Kernel fault detection and diagnosis for Kubernetes nodes",
		"org.opencontainers.image.source":      "https://github.com/kernosis/kernosis",
		"org.opencontainers.image.version":     testVersion,
		"org.opencontainers.image.revision":    testRevision,
		"org.opencontainers.image.licenses":    "Apache-2.0 AND (GPL-2.0-only OR BSD-2-Clause)",
		"org.opencontainers.image.created":     "2023-11-14T22:13:20Z",
	}
	if !maps.Equal(index.Annotations, about) {
		t.Errorf("index: %v", index.Annotations)
	}
	for _, arch := range []string{"amd64", "arm64"} {
		p := l.image(t, arch)
		if !maps.Equal(p.manifest.Annotations, about) {
			t.Errorf("%s: %v", arch, p.manifest.Annotations)
		}
		c := p.config
		if c.OS != "linux" || c.Architecture != arch || c.Variant != map[string]string{"arm64": "v8"}[arch] || c.Created == nil || !c.Created.Equal(created) {
			t.Errorf("%s: %s/%s/%s of %v", arch, c.OS, c.Architecture, c.Variant, c.Created)
		}
		want := ocispec.ImageConfig{
			User: "65532:65532", Entrypoint: []string{"/usr/bin/kernosis"}, WorkingDir: "/", Labels: about,
			Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		}
		if !reflect.DeepEqual(c.Config, want) {
			t.Errorf("%s: %+v", arch, c.Config)
		}
	}
}

// The image contains nothing else: each additional file could be attacked or become outdated.
func TestFiles(t *testing.T) {
	dir := image(t)
	l := readLayout(t)
	for _, arch := range []string{"amd64", "arm64"} {
		p := l.image(t, arch)
		want := map[string]struct {
			mode int64
			link string
		}{
			"etc/passwd":                         {mode: 0o644},
			"etc/group":                          {mode: 0o644},
			"home/kubernetes/bin/health-checker": {0o777, "/usr/bin/kernosis"},
			"home/kubernetes/bin/log-counter":    {0o777, "/usr/bin/kernosis"},
			"licenses/LICENSE":                   {mode: 0o644},
			"licenses/Apache-2.0.txt":            {mode: 0o644},
			"licenses/BSD-2-Clause.txt":          {mode: 0o644},
			"licenses/GPL-2.0-only.txt":          {mode: 0o644},
			"usr/bin/kernosis":                   {mode: 0o755},
			"usr/bin/kubectl-kernosis":           {0o777, "kernosis"},
			"usr/share/sbom/kernosis.cdx.json":   {mode: 0o644},
		}
		for name, e := range p.entries {
			h := e.header
			if h.Uid != 0 || h.Gid != 0 || h.Uname != "" || h.Gname != "" || !h.ModTime.Equal(created) || len(h.PAXRecords) != 0 || h.Mode&^0o777 != 0 {
				t.Errorf("%s: %s: owner %d:%d, mode %o, of %s, with %v", arch, name, h.Uid, h.Gid, h.Mode, h.ModTime, h.PAXRecords)
			}
			w, ok := want[name]
			switch {
			case h.Typeflag == tar.TypeDir:
				w.mode, ok = 0o755, true
			case strings.HasPrefix(name, "licenses/third-party/"):
				w.mode, ok = 0o644, true
			}
			if !ok || h.Mode != w.mode || h.Linkname != w.link {
				t.Errorf("%s: %s: wanted %v, mode %o, link %q", arch, name, ok, h.Mode, h.Linkname)
			}
			if h.Typeflag == tar.TypeReg && len(e.content) == 0 {
				t.Errorf("%s: %s is empty", arch, name)
			}
			delete(want, name)
		}
		for name := range want {
			t.Errorf("%s: no %s", arch, name)
		}
		if !bytes.Equal(p.entries["usr/bin/kernosis"].content, read(t, dir, programFile(arch))) {
			t.Errorf("%s: the program differs from that in dist", arch)
		}
	}
}

// The image contains the texts that the licences of all modules require to be distributed.
func TestLicences(t *testing.T) {
	dir := image(t)
	l := readLayout(t)
	for _, arch := range []string{"amd64", "arm64"} {
		has := map[string]int{}
		for name, e := range l.image(t, arch).entries {
			if rest, ok := strings.CutPrefix(name, "licenses/third-party/"); ok && e.header.Typeflag == tar.TypeReg {
				has[path.Dir(rest)]++
			}
		}
		p, err := readProgram(filepath.Join(dir, programFile(arch)))
		if err != nil {
			t.Fatal(err)
		}
		modules := linkedInto(p.info)
		if len(modules) < 40 {
			t.Errorf("%s: only %d modules", arch, len(modules))
		}
		for _, m := range modules {
			if has[m.path+"@"+m.version] == 0 {
				t.Errorf("%s: no licence of %s@%s", arch, m.path, m.version)
			}
		}
	}
}
