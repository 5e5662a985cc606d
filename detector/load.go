package detector

import (
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kernosis/kernosis/collector/document"
)

var (
	//go:embed rules/*.yaml
	shipped embed.FS
	//go:embed rules/schema/*.json
	schemas embed.FS
)

// Shipped returns the rule files shipped with Kernosis, one file a stem, each with its unit tests
// beside it (<stem>_test.yaml). They are a layer for [Load].
func Shipped() fs.FS {
	files, err := fs.Sub(shipped, "rules")
	if err != nil {
		panic(err) // can't happen: the path is valid
	}
	return files
}

// Schema returns the JSON Schema of rule files ("rules"), of their tests ("tests") or of mutes
// ("mutes"). The schemas are generated from [form].
func Schema(of string) ([]byte, error) { return schemas.ReadFile("rules/schema/" + of + ".json") }

// layer is one directory of rule files.
type layer struct {
	fsys fs.FS
	dir  string // shown before file names
	only string // the only file to read; empty: all rule files
}

// maxFiles bounds the files of a layer. Usually there is one rule file a stem.
const maxFiles = 1000

// load reads layers of rule files, with the layers of top above those of under.
func load(under []fs.FS, top ...layer) (*RuleSet, error) {
	c, err := newCompiler()
	if err != nil {
		return nil, err
	}
	l := newLoader(c)
	l.leftOut = newLoader(c)
	var layers []layer
	for _, fsys := range under {
		layers = append(layers, layer{fsys: fsys})
	}
	for i, ly := range append(layers, top...) {
		if err := l.layer(i, ly); err != nil {
			return nil, err
		}
	}
	return l.link()
}

// loader collects the rules of all layers and the mistakes of all files.
type loader struct {
	compiler   *compiler
	files      []*document.Reader
	order      []string // rule names, as first seen
	rules      map[string]*loadedRule
	conditions map[string]*loadedCondition
	errs       Errors  // not about the content of a file
	leftOut    *loader // holds the files that a Selection does not select
}

func newLoader(c *compiler) *loader {
	return &loader{compiler: c, rules: make(map[string]*loadedRule), conditions: make(map[string]*loadedCondition)}
}

func (l *loader) layer(index int, ly layer) error {
	names, err := ly.files()
	if err != nil {
		if pe := (*fs.PathError)(nil); errors.As(err, &pe) && ly.dir != "" {
			pe.Path = ly.dir // instead of "."
		}
		return fmt.Errorf("rules: %w", err)
	}
	selection, some := ly.fsys.(Selection)
	for n, name := range names {
		shown := name
		if ly.dir != "" {
			shown = filepath.Join(ly.dir, name)
		}
		if n == maxFiles {
			l.errs = append(l.errs, &Error{File: shown, Msg: fmt.Sprintf("more than %d rule files", maxFiles)})
			break
		}
		data, err := readBounded(ly.fsys, name)
		if err != nil {
			l.errs = append(l.errs, &Error{File: shown, Msg: readError(err)})
			continue
		}
		if some && !selection.Selected(name) {
			l.leftOut.file(index, shown, data)
			continue
		}
		l.file(index, shown, data)
	}
	return nil
}

// files returns the names of the layer's rule files.
func (ly *layer) files() ([]string, error) {
	if ly.only != "" {
		return []string{ly.only}, nil
	}
	return ruleFiles(ly.fsys)
}

// ruleFiles returns the names of a directory's rule files, sorted.
func ruleFiles(fsys fs.FS) (names []string, err error) {
	entries, err := fs.ReadDir(fsys, ".")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !isRuleFile(e.Name()) {
			continue
		}
		// Stat, because the files of a mounted ConfigMap are symbolic links.
		if info, err := fs.Stat(fsys, e.Name()); err != nil || info.Mode().IsRegular() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Contents returns a digest of the rule files that [LoadDir] would read from a directory: it
// changes with them. It returns an error if the directory can't be read.
func Contents(dir string) (sum [sha256.Size]byte, err error) {
	fsys := os.DirFS(dir)
	names, err := ruleFiles(fsys)
	if err != nil {
		return sum, fmt.Errorf("rules: %w", err)
	}
	h := sha256.New()
	for _, name := range names[:min(len(names), maxFiles+1)] {
		data, err := readBounded(fsys, name)
		_, _ = fmt.Fprintf(h, "%q %d %v\n", name, len(data), err) // writing to a hash never fails
		h.Write(data)
	}
	return [sha256.Size]byte(h.Sum(nil)), nil
}

// isRuleFile reports whether a file is a rule file, not a test, a hidden or another file.
func isRuleFile(name string) bool {
	ext := path.Ext(name)
	return (ext == ".yaml" || ext == ".yml") && !strings.HasPrefix(name, ".") &&
		!strings.HasSuffix(strings.TrimSuffix(name, ext), "_test")
}

// readBounded reads at most one byte more than a file may have. So the parser reports a file that
// is too large, without reading all of it.
func readBounded(fsys fs.FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, document.MaxFile+1))
}

// readError returns the text of a read error without the path, which the caller shows.
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
	return all.Err()
}
