package artifact

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
)

// Read returns the complete artifacts of a diagnosis in a store's folder, sorted by name. It
// changes nothing, so that another process may use the store. An artifact that is missing from the
// index has no checksum.
func Read(dir, id string) ([]Artifact, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("artifacts: %w", err)
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("artifacts: %w", err)
	}
	known, _ := (&Store{root: root}).readIndex(id)
	var out []Artifact
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !e.Type().IsRegular() || checkName(e.Name()) != nil {
			continue // removed since it was listed, incomplete, or not an artifact
		}
		a, ok := known[e.Name()]
		if !ok || a.Folder != "" || a.Size != info.Size() {
			a = Artifact{Name: e.Name(), Size: info.Size(), Time: info.ModTime()}
		}
		out = append(out, a)
	}
	for _, a := range known {
		if a.Folder == "" {
			continue
		}
		if info, err := os.Lstat(a.Path(dir, id)); err == nil && info.Mode().IsRegular() && info.Size() == a.Size {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, func(a, b Artifact) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}
