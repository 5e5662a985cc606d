package node

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// Program builds a command of this module, or of one that it requires, without cgo, and
// returns its path. It is there until the node ends.
func (n *Node) Program(tb testing.TB, pkg string) string {
	tb.Helper()
	path, err := n.program(tb.Context(), pkg)
	if err != nil {
		tb.Fatal(err)
	}
	return path
}

func (n *Node) program(ctx context.Context, pkg string) (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if path := n.built[pkg]; path != "" {
		return path, nil
	}
	path := n.path("bin", filepath.Base(pkg))
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-tags", "grpcnotrace", "-ldflags", "-s -w", "-o", path, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOOS=linux", "GOARCH="+runtime.GOARCH)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	n.built[pkg] = path
	return path, nil
}

// Image makes an image known to the container runtime that has static programs at its
// root, of which it runs the first. Images are never pulled: the tag must not be
// "latest". Tests may ask for the same one again.
func (n *Node) Image(tb testing.TB, name string, programs ...string) {
	tb.Helper()
	if err := n.image(tb.Context(), name, programs...); err != nil {
		tb.Fatal(err)
	}
}

func (n *Node) image(ctx context.Context, name string, programs ...string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.images[name] {
		return nil
	}
	text, err := pack(name, programs)
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

// Import makes the images of an archive known to the container runtime: an image layout
// as a tar, of which it takes what is for this machine.
func (n *Node) Import(tb testing.TB, archive string) {
	tb.Helper()
	if err := n.ctr(tb.Context(), "images", "import", archive); err != nil {
		tb.Fatal(err)
	}
}

// Tag gives an image one more name.
func (n *Node) Tag(tb testing.TB, name, more string) {
	tb.Helper()
	if err := n.ctr(tb.Context(), "images", "tag", name, more); err != nil {
		tb.Fatal(err)
	}
}

// layout is an image in the form of an OCI image layout, as a tar.
type layout struct {
	bytes.Buffer

	tar *tar.Writer
}

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// pack returns an image with programs at its root.
func pack(name string, programs []string) ([]byte, error) {
	if len(programs) == 0 {
		return nil, errors.New("no program")
	}
	layer, err := root(programs)
	if err != nil {
		return nil, err
	}
	l := &layout{}
	l.tar = tar.NewWriter(&l.Buffer)
	files, err := l.blob("application/vnd.oci.image.layer.v1.tar", layer)
	if err != nil {
		return nil, err
	}
	config, err := l.object("application/vnd.oci.image.config.v1+json", map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": []string{"/" + filepath.Base(programs[0])}, "Env": []string{"PATH=/"}, "WorkingDir": "/"},
		// The layer is not compressed, so its digest is that of its content too.
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{files.Digest}},
	})
	if err != nil {
		return nil, err
	}
	const manifestType = "application/vnd.oci.image.manifest.v1+json"
	manifest, err := l.object(manifestType, map[string]any{"schemaVersion": 2, "mediaType": manifestType, "config": config, "layers": []descriptor{files}})
	if err != nil {
		return nil, err
	}
	manifest.Annotations = map[string]string{"io.containerd.image.name": name}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": []descriptor{manifest}})
	if err != nil {
		return nil, err
	}
	err = errors.Join(l.file("index.json", index), l.file("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)), l.tar.Close())
	return l.Bytes(), err
}

// root returns the files of an image as a tar.
func root(programs []string) ([]byte, error) {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o777}); err != nil {
		return nil, err
	}
	for _, path := range programs {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: filepath.Base(path), Mode: 0o755, Size: int64(len(text))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(text); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return layer.Bytes(), err
}

func (l *layout) object(mediaType string, v any) (descriptor, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return descriptor{}, err
	}
	return l.blob(mediaType, text)
}

func (l *layout) blob(mediaType string, text []byte) (descriptor, error) {
	sum := sha256.Sum256(text)
	digest := hex.EncodeToString(sum[:])
	return descriptor{MediaType: mediaType, Digest: "sha256:" + digest, Size: len(text)}, l.file("blobs/sha256/"+digest, text)
}

func (l *layout) file(name string, text []byte) error {
	if err := l.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(text))}); err != nil {
		return err
	}
	_, err := l.tar.Write(text)
	return err
}
