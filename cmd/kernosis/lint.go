package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing/fstest"

	"github.com/spf13/cobra"

	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/collector/probe/service"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/lint"
	"github.com/kernosis/kernosis/detector/npd"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/manifest"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/catalog"
	"github.com/kernosis/kernosis/diagnose/review"
)

func newLint() *cobra.Command {
	var alerts []string
	var kernels, formats string
	var format *output.Format
	cmd := &cobra.Command{
		Use:   "lint [FILE|DIR]…",
		Short: "Find mistakes in log patterns, alerts and manifests",
		Long: `Find log patterns that match no line of current kernels and show what those kernels
print instead; and find mistakes in manifests of kernosis.io.

Input files are node-problem-detector configurations (*.json), rule files (*.yaml) and
manifests (either). Folders are read with all folders below them. Condition and reason
names in Prometheus rule files (--alerts) and Triggers are checked against these files and
the shipped rules.

Exit code: 0 no findings (info does not count); 1 findings; 2 a file can't be read.`,
		Example: `  kernosis lint config/kernel-monitor.json
  kernosis lint rules diagnose --alerts alerts.yaml -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args)+len(alerts) == 0 {
				return errors.New("lint: want files, folders or --alerts")
			}
			k, err := lint.ParseKernels(kernels)
			if err != nil {
				return err
			}
			found, err := lintFiles(args, alerts, k, formats)
			if err != nil {
				return err
			}
			return printFindings(cmd.OutOrStdout(), found, format)
		},
	}
	cmd.Flags().StringArrayVar(&alerts, "alerts", nil, "Prometheus rule `file` whose condition and reason names are checked (repeatable)")
	cmd.Flags().StringVar(&kernels, "kernels", strings.ReplaceAll(lint.DefaultKernels().String(), " to ", "-"), "kernel `versions` to check for: one, or FROM-TO")
	cmd.Flags().StringVar(&formats, "formats", "", "`path` of format strings of a kernel to compare patterns with: /sys/kernel/debug/printk/index, or a file of strings")
	format = output.AddNames(cmd, output.Text, output.JSON)
	return cmd
}

// printFindings writes findings. If any is more than information, the error has the exit code.
func printFindings(w io.Writer, found []lint.Finding, format *output.Format) error {
	n := 0
	for _, f := range found {
		if f.Level != lint.Info {
			n++
		}
		if format.ForPeople() {
			fmt.Fprintln(w, f)
			continue
		}
		if err := json.NewEncoder(w).Encode(f); err != nil {
			return output.Failed(err)
		}
	}
	if n > 0 {
		return &output.ExitError{Code: output.ExitFailed}
	}
	return nil
}

// lintFiles reads all files and checks them together, because an alert may refer to a rule of any of
// them.
func lintFiles(paths, alerts []string, k lint.Kernels, formats string) ([]lint.Finding, error) {
	files, err := lintPaths(paths)
	if err != nil {
		return nil, err
	}
	var in lint.Input
	var found []lint.Finding
	var errs []error
	var configs []*npd.File
	files, manifests, err := splitManifests(files)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		if filepath.Ext(f.path) != ".json" {
			continue
		}
		config, err := npd.LoadFile(f.path, npd.Options{AnyProgram: true})
		if err != nil {
			if f.named || !strings.Contains(err.Error(), "this is not a configuration") {
				errs = append(errs, err)
			}
			continue
		}
		configs = append(configs, config)
		found = append(found, lintWarnings(config)...)
	}
	in.FromNPD(configs)
	rules, err := addRules(&in, files)
	errs = append(errs, err)
	if rules != nil {
		list, err := lintManifests(manifests, rules, &in)
		errs, found = append(errs, err), append(found, list...)
	}
	addServices(&in)
	for _, path := range alerts {
		data, err := document.ReadAtMost(path, maxLintFile)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		list, err := lint.ParseAlerts(path, data)
		errs = append(errs, err)
		in.Alerts = append(in.Alerts, list...)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	corpus, err := lint.Shipped()
	if err != nil {
		return nil, err
	}
	found = append(found, lint.Check(in, corpus, k)...)
	if formats != "" {
		list, err := lintFormats(formats, in, corpus)
		if err != nil {
			return nil, err
		}
		found = append(found, list...)
	}
	slices.SortStableFunc(found, func(a, b lint.Finding) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	return found, nil
}

// lintFormats compares the patterns with the format strings of a kernel: a file of strings, or
// a folder with one file for the kernel and one for each module (printk's index).
func lintFormats(path string, in lint.Input, corpus *lint.Corpus) ([]lint.Finding, error) {
	paths := []string{path}
	if info, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("--formats: %w", err)
	} else if info.IsDir() {
		entries, err := os.ReadDir(path)
		if err != nil {
			return nil, fmt.Errorf("--formats: %w", err)
		}
		paths = nil
		for _, e := range entries {
			paths = append(paths, filepath.Join(path, e.Name()))
		}
	}
	var files []io.Reader
	for _, p := range paths {
		f, err := os.Open(p)
		if err != nil {
			return nil, fmt.Errorf("--formats: %w", err)
		}
		defer f.Close() //nolint:errcheck // read only
		files = append(files, f)
	}
	found, err := lint.OfKernel(in, corpus, io.MultiReader(files...))
	if err != nil {
		return nil, fmt.Errorf("--formats: %w", err)
	}
	return found, nil
}

func lintWarnings(f *npd.File) []lint.Finding {
	var out []lint.Finding
	for _, w := range f.Warnings {
		out = append(out, lint.Finding{File: f.Name, Line: w.Line, Level: lint.Warning, Code: "ignored", Message: inField(w.Field, w.Msg)})
	}
	if f.Skipped != "" {
		out = append(out, lint.Finding{File: f.Name, Line: 1, Level: lint.Info, Code: "skipped", Message: "skipped: " + f.Skipped})
	}
	return out
}

// lintFile is a file to check; named: it was given on the command line.
type lintFile struct {
	path  string
	named bool
	data  []byte
}

const maxLintFiles = 1000

func lintPaths(paths []string) ([]lintFile, error) {
	var out []lintFile
	for _, p := range paths {
		err := filepath.WalkDir(p, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir():
				if path != p && strings.HasPrefix(d.Name(), ".") {
					return filepath.SkipDir
				}
				return nil
			case path == p:
				if !isLintFile(path) {
					return fmt.Errorf("%s: want a .json, .yaml or .yml file or a folder", path)
				}
				out = append(out, lintFile{path: path, named: true})
			case isLintFile(path) && !strings.HasSuffix(strings.TrimSuffix(path, filepath.Ext(path)), "_test"):
				out = append(out, lintFile{path: path})
			}
			if len(out) > maxLintFiles {
				return fmt.Errorf("%s: more than %d files", p, maxLintFiles)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(out, func(a, b lintFile) int { return strings.Compare(a.path, b.path) })
	return slices.CompactFunc(out, func(a, b lintFile) bool { return a.path == b.path }), nil
}

func isLintFile(path string) bool {
	return slices.Contains([]string{".json", ".yaml", ".yml"}, filepath.Ext(path))
}

// maxLintFile is the largest size of a file that is read, in bytes; no format here allows more.
const maxLintFile = 4 << 20

// addRules adds the rule files to in, as one layer over the shipped rules. The shipped rules are only
// used for references by name. It returns the rules of both.
func addRules(in *lint.Input, files []lintFile) (*detector.RuleSet, error) {
	layer := make(fstest.MapFS)      // a map as a file system; nothing in it is specific to tests
	paths := make(map[string]string) // by name in the layer, which has no folders
	for i, f := range files {
		if filepath.Ext(f.path) == ".json" {
			continue
		}
		if !f.named && !bytes.Contains(f.data, []byte("rules.kernosis.io/")) {
			continue // some other YAML of the folder
		}
		name := fmt.Sprintf("%04d.yaml", i)
		layer[name], paths[name] = &fstest.MapFile{Data: f.data}, f.path
	}
	set, err := detector.Load(detector.Shipped(), layer)
	if list := (detector.Errors)(nil); errors.As(err, &list) {
		for _, e := range list {
			if path, ok := paths[e.File]; ok {
				e.File = path
			}
		}
		return nil, list
	}
	if err != nil {
		return nil, err
	}
	in.FromRules(set, func(file string) bool { return paths[file] != "" })
	for i := range in.Rules {
		if path, ok := paths[in.Rules[i].File]; ok {
			in.Rules[i].File = path
		}
	}
	return set, nil
}

// addServices adds the conditions of the services that agents probe, because alerts may refer to
// them and no rule file has them. It skips a condition that a file has.
func addServices(in *lint.Input) {
	for _, s := range service.Known() {
		if slices.ContainsFunc(in.Conditions, func(c lint.Condition) bool { return c.Type == s.Condition }) {
			continue
		}
		in.Conditions = append(in.Conditions, lint.Condition{Type: s.Condition})
		in.Rules = append(in.Rules, lint.Rule{Reason: s.Condition, Condition: s.Condition, Healthy: s.HealthyReason, Context: true})
	}
}

// splitManifests reads the files, and separates those with objects of kernosis.io from the others.
func splitManifests(files []lintFile) (others []lintFile, manifests []document.File, err error) {
	group := []byte(v1alpha1.GroupVersion().String())
	for _, f := range files {
		if f.data, err = document.ReadAtMost(f.path, maxLintFile); err != nil {
			return nil, nil, err
		}
		if bytes.Contains(f.data, group) {
			manifests = append(manifests, document.File{Name: f.path, Data: f.data})
		} else {
			others = append(others, f)
		}
	}
	return others, manifests, nil
}

// lintManifests checks manifests. rules are the shipped and the given ones; in also has
// those of node-problem-detector's files.
func lintManifests(files []document.File, rules *detector.RuleSet, in *lint.Input) ([]lint.Finding, error) {
	if len(files) == 0 {
		return nil, nil
	}
	r, err := manifest.NewReader()
	if err != nil {
		return nil, err
	}
	m, err := r.Parse(files...)
	if err != nil {
		return nil, err
	}
	shipped, err := manifest.ShippedFiles()
	if err != nil {
		return nil, err
	}
	known := review.Known{Builtins: catalog.All(operation.Host{})}
	if known.Shipped, err = r.Parse(shipped...); err != nil {
		return nil, err
	}
	for _, rule := range rules.Rules() {
		known.Rules = append(known.Rules, rule.Name)
		known.Reasons = append(known.Reasons, rule.Reason)
	}
	for _, c := range rules.Conditions() {
		known.Conditions = append(known.Conditions, c.Type)
	}
	for i := range in.Rules {
		known.Reasons = append(known.Reasons, in.Rules[i].Reason)
		known.Conditions = append(known.Conditions, in.Rules[i].Condition)
	}
	var out []lint.Finding
	for _, f := range review.Manifests(m, known) {
		p, level := f.Place, lint.Level(f.Level)
		out = append(out, lint.Finding{File: p.File, Line: p.Line, Level: level, Code: f.Code, Message: inField(p.Field, p.Msg)})
	}
	return out, nil
}

// inField returns a message about a field, or about the whole file if field is empty.
func inField(field, msg string) string {
	return strings.TrimPrefix(field+": "+msg, ": ")
}
