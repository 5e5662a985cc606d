package detector

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kernosis/kernosis/detector/internal/strictyaml"
)

// layer is one directory of rule files.
type layer struct {
	fsys fs.FS
	dir  string // shown before file names
}

// maxFiles bounds the files of a layer; a rule file a stem is the custom.
const maxFiles = 1000

func load(layers []layer) (*RuleSet, error) {
	c, err := newCompiler()
	if err != nil {
		return nil, err
	}
	l := &loader{compiler: c, rules: make(map[string]*loadedRule), conditions: make(map[string]*loadedCondition)}
	for i, ly := range layers {
		if err := l.layer(i, ly); err != nil {
			return nil, err
		}
	}
	return l.link()
}

// loader collects the rules of all layers and the mistakes of all files.
type loader struct {
	compiler   *compiler
	files      []*strictyaml.File
	order      []string // rule names, as first seen
	rules      map[string]*loadedRule
	conditions map[string]*loadedCondition
	errs       Errors // those of no file
}

func (l *loader) layer(index int, ly layer) error {
	entries, err := fs.ReadDir(ly.fsys, ".")
	if err != nil {
		if pe := (*fs.PathError)(nil); errors.As(err, &pe) && ly.dir != "" {
			pe.Path = ly.dir // which it calls "."
		}
		return fmt.Errorf("rules: %w", err)
	}
	n := 0
	for _, e := range entries {
		name := e.Name()
		if !isRuleFile(name) {
			continue
		}
		shown := name
		if ly.dir != "" {
			shown = filepath.Join(ly.dir, name)
		}
		// Stat, because the files of a mounted ConfigMap are symbolic links.
		if info, err := fs.Stat(ly.fsys, name); err == nil && !info.Mode().IsRegular() {
			continue
		}
		if n++; n > maxFiles {
			l.errs = append(l.errs, &Error{File: shown, Msg: fmt.Sprintf("more than %d rule files", maxFiles)})
			break
		}
		data, err := readBounded(ly.fsys, name)
		if err != nil {
			l.errs = append(l.errs, &Error{File: shown, Msg: readError(err)})
			continue
		}
		l.file(index, shown, data)
	}
	return nil
}

// isRuleFile tells rule files from their tests, hidden files and others.
func isRuleFile(name string) bool {
	ext := path.Ext(name)
	return (ext == ".yaml" || ext == ".yml") && !strings.HasPrefix(name, ".") &&
		!strings.HasSuffix(strings.TrimSuffix(name, ext), "_test")
}

// readBounded reads at most one byte more than a file may have, so that the
// parser can tell and a huge file costs nothing.
func readBounded(fsys fs.FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAtMost(f)
}

func readAtMost(r io.Reader) ([]byte, error) {
	return io.ReadAll(io.LimitReader(r, strictyaml.MaxFile+1))
}

// readError is the text of a read error without the path, which is shown already.
func readError(err error) string {
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
		return "read: " + pe.Err.Error()
	}
	return "read: " + err.Error()
}

// mistakes returns all mistakes in the order of files and lines.
func (l *loader) mistakes() error {
	all := slices.Clone(l.errs)
	for _, f := range l.files {
		f.Errors.Sort()
		all = append(all, f.Errors...)
	}
	if len(all) == 0 {
		return nil
	}
	return all
}
