package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// layout is an archive as read by a runtime.
type layout struct {
	files  map[string][]byte
	used   map[string]bool
	images map[string]*platformImage
}

var theLayout *layout // shared by all tests

// readLayout returns the archive of make image, which it reads only once.
func readLayout(t *testing.T) *layout {
	t.Helper()
	file := filepath.Join(image(t), "kernosis-image.tar")
	if theLayout != nil {
		return theLayout
	}
	l := &layout{files: map[string][]byte{}, used: map[string]bool{}, images: map[string]*platformImage{}}
	for _, f := range untar(t, read(t, file)) {
		if _, ok := l.files[f.header.Name]; ok || f.header.Typeflag != tar.TypeReg || !f.header.ModTime.Equal(created) {
			t.Errorf("%s: twice, no file, or of %s", f.header.Name, f.header.ModTime)
		}
		l.files[f.header.Name] = f.content
	}
	theLayout = l
	return l
}

type tarEntry struct {
	header  *tar.Header
	content []byte
}

func untar(t *testing.T, text []byte) []tarEntry {
	t.Helper()
	var all []tarEntry
	r := tar.NewReader(bytes.NewReader(text))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, tarEntry{h, content})
	}
}

// blob returns the blob of a descriptor and checks it against the descriptor.
func (l *layout) blob(t *testing.T, d ocispec.Descriptor) []byte {
	t.Helper()
	name := path.Join("blobs", d.Digest.Algorithm().String(), d.Digest.Encoded())
	l.used[name] = true
	content, ok := l.files[name]
	if !ok || int64(len(content)) != d.Size || digest.FromBytes(content) != d.Digest {
		t.Fatalf("%s: there %v, %d bytes; want %d bytes of this sum", name, ok, len(content), d.Size)
	}
	return content
}

// object decodes a blob, which must conform to the specification's schema.
func (l *layout) object(t *testing.T, d ocispec.Descriptor, mediaType, schema string, to any) {
	t.Helper()
	if d.MediaType != mediaType {
		t.Errorf("%s is %s, want %s", d.Digest, d.MediaType, mediaType)
	}
	text := l.blob(t, d)
	validate(t, imageSchema(t, schema), text)
	if err := json.Unmarshal(text, to); err != nil {
		t.Fatal(err)
	}
}

// top returns the single image of the archive and its index of platforms.
func (l *layout) top(t *testing.T) (ocispec.Descriptor, ocispec.Index) {
	t.Helper()
	validate(t, imageSchema(t, "image-layout-schema.json"), l.files["oci-layout"])
	validate(t, imageSchema(t, "image-index-schema.json"), l.files["index.json"])
	l.used["oci-layout"], l.used["index.json"] = true, true
	var outer, inner ocispec.Index
	if err := json.Unmarshal(l.files["index.json"], &outer); err != nil {
		t.Fatal(err)
	}
	if len(outer.Manifests) != 1 {
		t.Fatalf("%d images, want one: %+v", len(outer.Manifests), outer.Manifests)
	}
	l.object(t, outer.Manifests[0], ocispec.MediaTypeImageIndex, "image-index-schema.json", &inner)
	return outer.Manifests[0], inner
}

// platformImage is the image of a platform.
type platformImage struct {
	manifest ocispec.Manifest
	config   ocispec.Image
	entries  map[string]tarEntry // of all layers, by path from the root
}

func (l *layout) image(t *testing.T, arch string) *platformImage {
	t.Helper()
	if p := l.images[arch]; p != nil {
		return p
	}
	_, index := l.top(t)
	i := slices.IndexFunc(index.Manifests, func(d ocispec.Descriptor) bool {
		return d.Platform != nil && d.Platform.OS == "linux" && d.Platform.Architecture == arch
	})
	if i < 0 {
		t.Fatalf("no image for %s in %+v", arch, index.Manifests)
	}
	p := &platformImage{entries: map[string]tarEntry{}}
	l.object(t, index.Manifests[i], ocispec.MediaTypeImageManifest, "image-manifest-schema.json", &p.manifest)
	l.object(t, p.manifest.Config, ocispec.MediaTypeImageConfig, "config-schema.json", &p.config)
	if len(p.manifest.Layers) != len(p.config.RootFS.DiffIDs) {
		t.Fatalf("%d layers and %d sums", len(p.manifest.Layers), len(p.config.RootFS.DiffIDs))
	}
	for i, d := range p.manifest.Layers {
		z, err := gzip.NewReader(bytes.NewReader(l.blob(t, d)))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		if got := digest.FromBytes(text); got != p.config.RootFS.DiffIDs[i] {
			t.Errorf("layer %d is %s, want %s", i, got, p.config.RootFS.DiffIDs[i])
		}
		for _, e := range untar(t, text) {
			name := strings.TrimSuffix(e.header.Name, "/")
			if !filepath.IsLocal(name) {
				t.Errorf("%q points outside the image", name)
			}
			if other, ok := p.entries[name]; ok && (e.header.Typeflag != tar.TypeDir || other.header.Typeflag != tar.TypeDir) {
				t.Errorf("%s is in two layers", name)
			}
			p.entries[name] = e
		}
	}
	l.images[arch] = p
	return p
}
