package document

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Bounds of what is read. An OperationSet of 256 nodes has about 20 KiB.
const (
	maxManifests = 4 << 20 // bytes
	maxFiles     = 1000    // in a folder
)

// Stdin is the path that means the standard input.
const Stdin = "-"

// File is the content of one file.
type File struct {
	Name string
	Data []byte
}

// ReadFiles reads files. For a folder it reads all files in it whose names end in .yaml, .yml or
// .json, ordered by name. [Stdin] means stdin.
func ReadFiles(paths []string, stdin io.Reader) ([]File, error) {
	var files []File
	for _, path := range paths {
		names, err := filesOf(path)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			f, err := readFile(name, stdin)
			if err != nil {
				return nil, err
			}
			files = append(files, f)
		}
	}
	return files, nil
}

// filesOf returns the path itself or, for a folder, the manifests in it.
func filesOf(path string) ([]string, error) {
	if path == Stdin {
		return []string{path}, nil
	}
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		// Links to files are included: mounted ConfigMaps consist of them.
		if e.IsDir() || strings.HasPrefix(e.Name(), ".") || !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name())) {
			continue
		}
		names = append(names, filepath.Join(path, e.Name()))
	}
	switch {
	case len(names) == 0:
		return nil, fmt.Errorf("%s: no .yaml, .yml or .json files found", path)
	case len(names) > maxFiles:
		return nil, fmt.Errorf("%s: %d files, at most %d are allowed", path, len(names), maxFiles)
	}
	return names, nil
}

func readFile(path string, stdin io.Reader) (File, error) {
	from, name, shown := stdin, "stdin", "standard input"
	if path != Stdin {
		f, err := os.Open(path)
		if err != nil {
			return File{}, err
		}
		defer f.Close()
		from, name, shown = f, path, path
	}
	data, err := io.ReadAll(io.LimitReader(from, maxManifests+1))
	if err == nil && len(data) > maxManifests {
		err = fmt.Errorf("larger than %d bytes", maxManifests)
	}
	if err != nil {
		return File{}, fmt.Errorf("%s: %w", shown, err)
	}
	return File{Name: name, Data: data}, nil
}

// ReadFile reads a regular file of at most limit bytes; it does not block on a named pipe.
func ReadFile(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil, errors.Join(err, fmt.Errorf("%s is not a regular file", path))
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, limit)
	}
	return data, nil
}

// ReadAtMost reads a file, or the first bytes if it is longer than most.
func ReadAtMost(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most))
}
