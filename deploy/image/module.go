package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// std is the module name of Go's standard library in vulnerability databases.
const std = "stdlib"

// module is a Go module that is linked into programs.
type module struct {
	path, version string // golang.org/x/sys, v0.1.0; stdlib, 1.26.8
	sum           string // as in go.sum: h1:…; "" for std
	licences      []file
	ids           []string // SPDX identifiers of the licences, in their order
}

// file is a file of the sources or of a module.
type file struct {
	name    string // relative
	content []byte
}

// readModules returns all modules linked into the programs, with their licences. A module without a
// licence is an error, because it could not be redistributed.
func readModules(ctx context.Context, source string, programs []*program) ([]module, error) {
	linked := map[string]module{}
	for _, p := range programs {
		for _, m := range linkedInto(p.info) {
			if other, ok := linked[m.path]; ok && other.version != m.version {
				return nil, fmt.Errorf("programs contain different versions of %s: %s and %s: rebuild them", m.path, other.version, m.version)
			}
			linked[m.path] = m
		}
	}
	dirs, err := folders(ctx, source, linked)
	if err != nil {
		return nil, err
	}
	var errs []error
	modules := slices.SortedFunc(maps.Values(linked), func(a, b module) int { return cmp.Compare(a.path, b.path) })
	for i := range modules {
		m := &modules[i]
		if err := m.readLicences(dirs[m.path]); err != nil {
			errs = append(errs, fmt.Errorf("%s@%s: %w", m.path, m.version, err))
		}
	}
	return modules, errors.Join(errs...)
}

// linkedInto returns the modules of a program, including Go itself, without licences.
func linkedInto(info *debug.BuildInfo) []module {
	all := []module{{path: std, version: strings.TrimPrefix(info.GoVersion, "go")}}
	for _, d := range info.Deps {
		if d.Replace != nil {
			d = d.Replace
		}
		all = append(all, module{path: d.Path, version: d.Version, sum: d.Sum})
	}
	return all
}

// folders returns the source folders of modules by path. They exist locally, as the modules were
// compiled here. The folder of std is Go's own.
func folders(ctx context.Context, source string, linked map[string]module) (map[string]string, error) {
	root, err := goCommand(ctx, source, "env", "GOROOT", "GOVERSION")
	if err != nil {
		return nil, err
	}
	goRoot, version, _ := strings.Cut(strings.TrimSpace(string(root)), "\n")
	if want := "go" + linked[std].version; version != want {
		return nil, fmt.Errorf("programs were built with %s, but this is %s: rebuild them", want, version)
	}
	dirs := map[string]string{std: goRoot}
	args := []string{"list", "-m", "-json=Path,Version,Dir,Replace"}
	for _, path := range slices.Sorted(maps.Keys(linked)) {
		if path != std {
			args = append(args, path)
		}
	}
	out, err := goCommand(ctx, source, args...)
	if err != nil {
		return nil, err
	}
	type listed struct {
		Path, Version, Dir string
		Replace            *struct{ Path, Version, Dir string }
	}
	dec := json.NewDecoder(bytes.NewReader(out))
	for {
		var m listed
		if err := dec.Decode(&m); errors.Is(err, io.EOF) {
			return dirs, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		if m.Replace != nil {
			m.Path, m.Version, m.Dir = m.Replace.Path, m.Replace.Version, m.Replace.Dir
		}
		if has := linked[m.Path].version; has != m.Version {
			return nil, fmt.Errorf("programs contain %s %q, but go.mod has %q: rebuild them", m.Path, has, m.Version)
		}
		dirs[m.Path] = m.Dir
	}
}

func goCommand(ctx context.Context, dir string, args ...string) ([]byte, error) {
	var said strings.Builder
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Stderr = dir, &said
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w: %s", args[0], err, strings.TrimSpace(said.String()))
	}
	return out, nil
}

// readLicences reads the files that must be distributed with a module's code.
func (m *module) readLicences(dir string) error {
	if dir == "" {
		return errors.New("its source code is missing: rebuild the programs")
	}
	licence := regexp.MustCompile(`(?i)^(licen[cs]e|copying)`)
	addition := regexp.MustCompile(`(?i)^(notice|patents)`)
	entries, err := os.ReadDir(dir) // sorted
	if err != nil {
		return err
	}
	for _, e := range entries {
		names := licence.MatchString(e.Name())
		if !e.Type().IsRegular() || !names && !addition.MatchString(e.Name()) || filepath.Ext(e.Name()) == ".go" {
			continue
		}
		content, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		m.licences = append(m.licences, file{name: e.Name(), content: content})
		if !names {
			continue
		}
		for _, match := range licensecheck.Scan(content).Match {
			if !match.IsURL && !slices.Contains(m.ids, match.ID) {
				m.ids = append(m.ids, match.ID)
			}
		}
	}
	if len(m.ids) == 0 {
		return fmt.Errorf("no file with a recognized licence in %s", dir)
	}
	return nil
}

// readFiles returns the files of a folder that match the patterns, sorted. Each pattern must match
// at least one file.
func readFiles(dir string, patterns ...string) ([]file, error) {
	var files []file
	for _, pattern := range patterns {
		paths, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return nil, err
		}
		if len(paths) == 0 {
			return nil, fmt.Errorf("no %s in %s", pattern, dir)
		}
		for _, path := range paths {
			content, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			name, err := filepath.Rel(dir, path)
			if err != nil {
				return nil, err
			}
			files = append(files, file{name: filepath.ToSlash(name), content: content})
		}
	}
	return files, nil
}
