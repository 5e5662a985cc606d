package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	dist "github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// imageName is the annotation in which containerd and docker look for an image's full name in an
// archive. The standard annotation contains only the tag.
const imageName = "io.containerd.image.name"

// reference returns the full name of an image. Runtimes add their default registry to a name
// without one, and find the image only under the full name. The tag has no leading v, like the
// chart versions that refer to it.
func reference(name, version string) (dist.NamedTagged, error) {
	named, err := dist.ParseNormalizedNamed(name)
	if err != nil {
		return nil, fmt.Errorf("-name: %q: %w", name, err)
	}
	if !dist.IsNameOnly(named) {
		return nil, fmt.Errorf("-name: %q: want no tag or digest (the tag is the version)", name)
	}
	tagged, err := dist.WithTag(named, strings.TrimPrefix(version, "v"))
	if err != nil {
		return nil, fmt.Errorf("-version: %q can't be a tag: %w", version, err)
	}
	return tagged, nil
}

// blobs has the blobs of an OCI image layout under construction.
type blobs map[digest.Digest][]byte

// write writes the image for all platforms as a tar and returns the digest that a registry will use
// for it.
func (b *builder) write(w io.Writer, ref dist.NamedTagged) (digest.Digest, error) {
	a := blobs{}
	index := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Annotations: b.about()}
	for _, p := range b.programs {
		manifest, err := b.manifest(a, p)
		if err != nil {
			return "", err
		}
		index.Manifests = append(index.Manifests, manifest)
	}
	image, err := a.object(ocispec.MediaTypeImageIndex, index)
	if err != nil {
		return "", err
	}
	// Name only the index for all platforms: several images of the same name in an archive would
	// replace each other.
	image.Annotations = map[string]string{imageName: ref.String(), ocispec.AnnotationRefName: ref.Tag()}
	files, err := a.files(ocispec.Index{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{image},
	})
	if err != nil {
		return "", err
	}
	return image.Digest, writeTar(w, files, b.created)
}

// about returns the labels of an image.
func (b *builder) about() map[string]string {
	about := map[string]string{
		ocispec.AnnotationTitle:       "kernosis",
		ocispec.AnnotationDescription: "Kernel fault detection and diagnosis for Kubernetes nodes",
		ocispec.AnnotationSource:      "https://" + modulePath,
		ocispec.AnnotationVersion:     b.version,
		ocispec.AnnotationLicenses:    allOfIt,
		ocispec.AnnotationCreated:     b.created.Format(time.RFC3339),
	}
	if b.revision != "" {
		about[ocispec.AnnotationRevision] = b.revision
	}
	return about
}

// manifest adds the image of one platform to an archive.
func (b *builder) manifest(a blobs, p *program) (ocispec.Descriptor, error) {
	image := ocispec.Image{
		Created: &b.created, Platform: p.platform,
		Config: ocispec.ImageConfig{
			User: user, Entrypoint: []string{"/" + programPath}, WorkingDir: "/", Labels: b.about(),
			// For derived images and for check programs mounted into this one.
			Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		},
		RootFS: ocispec.RootFS{Type: "layers"},
	}
	manifest := ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, Annotations: b.about(),
	}
	layers, err := b.layers(p)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	for i, what := range []string{"users and licences", "kernosis"} {
		var text bytes.Buffer
		if err := writeTar(&text, withFolders(layers[i]), b.created); err != nil {
			return ocispec.Descriptor{}, err
		}
		packed, err := pack(text.Bytes())
		if err != nil {
			return ocispec.Descriptor{}, err
		}
		manifest.Layers = append(manifest.Layers, a.blob(ocispec.MediaTypeImageLayerGzip, packed))
		image.RootFS.DiffIDs = append(image.RootFS.DiffIDs, digest.FromBytes(text.Bytes()))
		image.History = append(image.History, ocispec.History{Created: &b.created, CreatedBy: "deploy/image: " + what})
	}
	if manifest.Config, err = a.object(ocispec.MediaTypeImageConfig, image); err != nil {
		return ocispec.Descriptor{}, err
	}
	d, err := a.object(ocispec.MediaTypeImageManifest, manifest)
	d.Platform = &p.platform
	return d, err
}

// pack compresses with gzip, which all runtimes and registries support.
func pack(text []byte) ([]byte, error) {
	var buf bytes.Buffer
	w, err := gzip.NewWriterLevel(&buf, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	_, err = w.Write(text)
	err = errors.Join(err, w.Close())
	return buf.Bytes(), err
}

func (a blobs) blob(mediaType string, content []byte) ocispec.Descriptor {
	d := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(content), Size: int64(len(content))}
	a[d.Digest] = content
	return d
}

func (a blobs) object(mediaType string, v any) (ocispec.Descriptor, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	return a.blob(mediaType, text), nil
}

// files returns the files of the layout.
func (a blobs) files(index ocispec.Index) ([]entry, error) {
	top, err := json.Marshal(index)
	if err != nil {
		return nil, err
	}
	version, err := json.Marshal(ocispec.ImageLayout{Version: ocispec.ImageLayoutVersion})
	if err != nil {
		return nil, err
	}
	// The metadata comes first, for readers that look only at the beginning.
	files := []entry{{path: ocispec.ImageLayoutFile, mode: 0o644, content: version}, {path: ocispec.ImageIndexFile, mode: 0o644, content: top}}
	for _, d := range slices.Sorted(maps.Keys(a)) {
		files = append(files, entry{path: path.Join(ocispec.ImageBlobsDir, d.Algorithm().String(), d.Encoded()), mode: 0o644, content: a[d]})
	}
	return files, nil
}
