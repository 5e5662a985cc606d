// Package kernosis_test checks the module as a whole.
package kernosis_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/kernosis/kernosis"

// order lists the top-level folders: a package may import packages of its own folder and of the
// folders before it.
var order = []string{"bpf", "collector", "docs", "detector", "reporter", "diagnose", "deploy", "cmd", "vmtest"}

// pure packages contain only decision logic and don't access the machine or a cluster. Of this
// module they import only the listed packages and those that only hold data or text.
var pure = map[string][]string{
	"collector/display": {}, "collector/document": {}, "collector/event": {}, "collector/logpattern": {},
	"detector": {"collector/logpattern", "detector/internal/form"}, "detector/problem": {}, "diagnose/graph": {}, "diagnose/policy": {"diagnose/api"},
}

// data are the packages that pure ones may import.
var data = []string{"collector/display", "collector/document", "collector/event", "detector/problem"}

func TestImportsPointOneWay(t *testing.T) {
	rank := func(dir string) int {
		top, _, _ := strings.Cut(dir, "/")
		return slices.Index(order, top)
	}
	for dir, files := range goFiles(t) {
		for _, f := range files {
			for _, imp := range f.Imports {
				target, ok := strings.CutPrefix(strings.Trim(imp.Path.Value, `"`), module+"/")
				if !ok {
					continue
				}
				if rank(dir) < 0 || rank(target) > rank(dir) {
					t.Errorf("%s imports %s: the order is %s", dir, target, strings.Join(order, ", "))
				}
				allowed, decides := pure[dir]
				if decides && !slices.ContainsFunc(append(allowed, data...), func(a string) bool { return within(target, a) }) {
					t.Errorf("%s imports %s; it may import %v and %v", dir, target, allowed, data)
				}
			}
		}
	}
	for dir := range pure {
		if len(goFiles(t)[dir]) == 0 {
			t.Errorf("there is no package %s", dir)
		}
	}
}

// docs/architecture.md lists every package, nothing else, and fits two screens.
func TestArchitectureIsDocumented(t *testing.T) {
	text, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(string(text), "\n"); lines > maxArchitecture {
		t.Errorf("%d lines; it is to be read at a glance: %d", lines, maxArchitecture)
	}
	blocks := strings.Split(string(text), "```text\n")
	tree, _, _ := strings.Cut(blocks[len(blocks)-1], "```")
	packages, listed := goFiles(t), listedFolders(tree)
	for dir := range packages {
		if dir != "." && !slices.Contains(listed, dir) {
			t.Errorf("docs/architecture.md does not list %s", dir)
		}
	}
	for _, dir := range listed {
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("docs/architecture.md lists %s: %v", dir, err)
		}
	}
}

const maxArchitecture = 120

// listedFolders returns the folders of a tree: names that end with a slash, two spaces
// deeper than their parent.
func listedFolders(tree string) []string {
	var out, above []string
	for line := range strings.Lines(tree) {
		name := strings.TrimLeft(line, " ")
		depth := (len(line) - len(name)) / 2
		above = above[:depth]
		for word := range strings.FieldsSeq(name) {
			dir, ok := strings.CutSuffix(word, "/")
			if !ok {
				break
			}
			above = append(above[:depth], dir)
			out = append(out, strings.Join(above, "/"))
		}
	}
	return out
}

// Packages that only tests import are not part of the product.
func TestTheProductDoesNotImportWhatTestsAreMadeOf(t *testing.T) {
	tests := []string{"diagnose/api/apitest", "vmtest"}
	ofTests := func(dir string) bool {
		return slices.ContainsFunc(tests, func(root string) bool { return within(dir, root) })
	}
	for dir, files := range goFiles(t) {
		for _, f := range files {
			for _, imp := range f.Imports {
				target, ok := strings.CutPrefix(strings.Trim(imp.Path.Value, `"`), module+"/")
				if ok && ofTests(target) && !ofTests(dir) {
					t.Errorf("%s imports %s", dir, target)
				}
			}
		}
	}
}

func within(dir, root string) bool { return dir == root || strings.HasPrefix(dir, root+"/") }

func TestEveryPackageHasADocComment(t *testing.T) {
	for dir, files := range goFiles(t) {
		var doc string
		for _, f := range files {
			if f.Doc != nil {
				doc = f.Doc.Text()
			}
		}
		name := files[0].Name.Name
		want := "Package " + strings.TrimSuffix(name, "_test") + " "
		if name == "main" {
			want = "Command "
		}
		if !strings.HasPrefix(doc, want) && !strings.HasPrefix(doc, "Package "+name+" ") {
			t.Errorf("%s: package comment must begin with %q", dir, want)
		}
	}
}

// goFiles parses every Go file of the module except tests, by folder.
func goFiles(t *testing.T) map[string][]*ast.File {
	t.Helper()
	fset := token.NewFileSet()
	files := map[string][]*ast.File{}
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if p != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
				return filepath.SkipDir
			}
			return nil
		}
		if path.Ext(p) != ".go" || strings.HasSuffix(p, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(fset, p, nil, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		files[filepath.ToSlash(filepath.Dir(p))] = append(files[filepath.ToSlash(filepath.Dir(p))], f)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

const maxFunction = 80 // lines

func TestFunctionsAreShort(t *testing.T) {
	fset := token.NewFileSet()
	for dir := range goFiles(t) {
		names, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if ast.IsGenerated(f) {
				continue
			}
			for _, d := range f.Decls {
				if lines := fset.Position(d.End()).Line - fset.Position(d.Pos()).Line + 1; lines > maxFunction {
					if fn, ok := d.(*ast.FuncDecl); ok {
						t.Errorf("%s: %s has %d lines, more than %d", name, fn.Name.Name, lines, maxFunction)
					}
				}
			}
		}
	}
}

func TestNoUtilityPackages(t *testing.T) {
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && slices.Contains([]string{"util", "utils", "helper", "helpers", "common", "pkg", "misc"}, d.Name()) {
			t.Errorf("%s: a folder is named after what it is, not after how it is used", p)
		}
		return nil
	})
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
}
