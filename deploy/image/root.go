package main

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Paths in the image.
const (
	programPath = "usr/bin/kernosis"
	sbomPath    = "usr/share/sbom/kernosis.cdx.json"
	licenceDir  = "licenses"
)

// user is the default user of the image: neither root nor a user that exists on nodes.
const user = "65532:65532"

const passwd = `root:x:0:0:root:/:/sbin/nologin
nonroot:x:65532:65532:nonroot:/:/sbin/nologin
`

const group = `root:x:0:
nonroot:x:65532:
`

// entry is a file or link of an image. It is owned by root; its parent folders are created.
type entry struct {
	path    string // as in a tar: relative to the root
	mode    fs.FileMode
	content []byte
	link    string // target of a link; empty for a file
}

// layers returns the files of the image for a program, grouped into layers: what rarely changes
// comes first, what always changes last.
func (b *builder) layers(p *program) ([][]entry, error) {
	sbom, err := b.bom([]*program{p})
	if err != nil {
		return nil, err
	}
	base := []entry{
		{path: "etc/passwd", mode: 0o644, content: []byte(passwd)},
		{path: "etc/group", mode: 0o644, content: []byte(group)},
	}
	for _, l := range b.licences {
		base = append(base, entry{path: path.Join(licenceDir, path.Base(l.name)), mode: 0o644, content: l.content})
	}
	for _, m := range b.modules {
		for _, l := range m.licences {
			base = append(base, entry{path: path.Join(licenceDir, "third-party", m.path+"@"+m.version, l.name), mode: 0o644, content: l.content})
		}
	}
	return [][]entry{base, {
		{path: programPath, mode: 0o755, content: p.content},
		// kubectl finds its plugins by their names. node-problem-detector's configurations
		// name its check programs by their paths.
		{path: "usr/bin/kubectl-kernosis", link: "kernosis"},
		{path: "home/kubernetes/bin/health-checker", link: "/" + programPath},
		{path: "home/kubernetes/bin/log-counter", link: "/" + programPath},
		{path: sbomPath, mode: 0o644, content: sbom},
	}}, nil
}

// withFolders adds the parent folders to entries and returns them in the order of a tar.
func withFolders(entries []entry) []entry {
	all := slices.Clone(entries)
	seen := map[string]bool{}
	for _, e := range entries {
		for dir := path.Dir(e.path); dir != "." && !seen[dir]; dir = path.Dir(dir) {
			seen[dir] = true
			all = append(all, entry{path: dir, mode: fs.ModeDir | 0o755})
		}
	}
	slices.SortFunc(all, func(a, b entry) int { return strings.Compare(a.path, b.path) })
	return all
}

// writeTar writes a tar of entries.
func writeTar(to io.Writer, entries []entry, modified time.Time) error {
	w := tar.NewWriter(to)
	for _, e := range entries {
		h := &tar.Header{Name: e.path, Mode: int64(e.mode.Perm()), ModTime: modified}
		switch {
		case e.mode.IsDir():
			h.Typeflag, h.Name = tar.TypeDir, e.path+"/"
		case e.link != "":
			h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, e.link, 0o777
		default:
			h.Typeflag, h.Size = tar.TypeReg, int64(len(e.content))
		}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if _, err := w.Write(e.content); err != nil {
			return err
		}
	}
	return w.Close()
}

// writeRoot writes the files of the image to a folder, which must not exist.
func (b *builder) writeRoot(dir string) error {
	layers, err := b.layers(b.programs[0])
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	entries := withFolders(slices.Concat(layers...))
	for _, e := range entries {
		if err := e.write(dir); err != nil {
			return err
		}
	}
	// Set a folder's time last: writing into it changes it.
	var errs []error
	for _, e := range slices.Backward(entries) {
		if e.link == "" {
			errs = append(errs, os.Chtimes(filepath.Join(dir, e.path), b.created, b.created))
		}
	}
	return errors.Join(errs...)
}

func (e *entry) write(dir string) error {
	to := filepath.Join(dir, e.path)
	var err error
	switch {
	case e.link != "":
		return os.Symlink(e.link, to)
	case e.mode.IsDir():
		err = os.Mkdir(to, e.mode.Perm())
	default:
		err = os.WriteFile(to, e.content, e.mode.Perm())
	}
	return errors.Join(err, os.Chmod(to, e.mode.Perm())) // regardless of the umask
}
