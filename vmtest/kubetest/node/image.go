package node

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Image imports an image into the container runtime that contains static programs at its root and
// runs the first of them. Images are never pulled, so the tag must not be "latest". Several tests
// may import the same image.
func (n *Node) Image(tb testing.TB, name string, programs ...string) {
	tb.Helper()
	if err := n.image(tb.Context(), name, programs); err != nil {
		tb.Fatal(err)
	}
}

// image is [Node.Image] with the arguments that the first program gets by default.
func (n *Node) image(ctx context.Context, name string, programs []string, args ...string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.images[name] {
		return nil
	}
	text, err := pack(name, programs, args)
	if err != nil {
		return fmt.Errorf("image %s: %w", name, err)
	}
	file := n.path("image.tar")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return err
	}
	if err := errors.Join(n.ctr(ctx, "images", "import", file), os.Remove(file)); err != nil {
		return fmt.Errorf("image %s: %w", name, err)
	}
	n.images[name] = true
	return nil
}

// Import imports the images of an archive into the container runtime: a tar of an image layout, of
// which it imports this machine's platform.
func (n *Node) Import(tb testing.TB, archive string) {
	tb.Helper()
	if err := n.ctr(tb.Context(), "images", "import", archive); err != nil {
		tb.Fatal(err)
	}
}

// pack returns an image with programs at its root, in the format of "docker save": a configuration,
// a layer, and a manifest that names both.
func pack(name string, programs, args []string) ([]byte, error) {
	var layer, image bytes.Buffer
	files := tar.NewWriter(&layer)
	if err := files.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o777}); err != nil {
		return nil, err
	}
	for _, path := range programs {
		text, err := os.ReadFile(path)
		if err == nil {
			err = add(files, filepath.Base(path), text)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := files.Close(); err != nil {
		return nil, err
	}
	config, err := json.Marshal(ocispec.Image{
		Platform: ocispec.Platform{OS: "linux", Architecture: runtime.GOARCH},
		Config:   ocispec.ImageConfig{Entrypoint: []string{"/" + filepath.Base(programs[0])}, Cmd: args, Env: []string{"PATH=/"}, WorkingDir: "/"},
		RootFS:   ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{digest.FromBytes(layer.Bytes())}},
	})
	if err != nil {
		return nil, err
	}
	manifest, err := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": []string{name}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return nil, err
	}
	w := tar.NewWriter(&image)
	err = errors.Join(add(w, "manifest.json", manifest), add(w, "config.json", config), add(w, "layer.tar", layer.Bytes()), w.Close())
	return image.Bytes(), err
}

func add(w *tar.Writer, name string, text []byte) error {
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Size: int64(len(text))}); err != nil {
		return err
	}
	_, err := w.Write(text)
	return err
}
