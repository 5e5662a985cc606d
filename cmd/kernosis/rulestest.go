package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kernosis/kernosis/cmd/kernosis/agent"
	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/ruletest"
)

func newRulesTest() *cobra.Command {
	var format *output.Format
	var strict bool
	cmd := &cobra.Command{
		Use:   "test [FILE|DIR…]",
		Short: "Run the unit tests (*_test.yaml) of the shipped rules, or those of files and folders",
		Long: `Run the unit tests of rules: all *_test.yaml files of a folder, or single files. Rules of
the same folder are loaded over the shipped ones. Without arguments, the shipped rules and
tests run. Rules without a test that they fire, do not fire, clear and flap are listed.

Exit code: 0 all passed; 1 a test failed, or with --strict a rule is not fully tested;
2 a file has a mistake.`,
		Example: `  kernosis rules test /etc/kernosis/rules
  kernosis rules test --strict -o junit rules >rules.xml`,
		RunE: func(cmd *cobra.Command, args []string) error {
			write := map[string]func(*ruletest.Results, io.Writer) error{
				"text": (*ruletest.Results).WriteText, "tap": (*ruletest.Results).WriteTAP, "junit": (*ruletest.Results).WriteJUnit,
			}[format.String()]
			results, err := testRules(args)
			if err != nil {
				return err
			}
			results.Strict = strict
			if err := write(results, cmd.OutOrStdout()); err != nil {
				return output.Failed(err)
			}
			if results.Failed() > 0 {
				return &output.ExitError{Code: output.ExitFailed}
			}
			return nil
		},
	}
	format = output.AddNames(cmd, output.Text, "tap", "junit")
	cmd.Flags().BoolVar(&strict, "strict", false, "also fail for rules that are not fully tested")
	return cmd
}

type testDir struct {
	dir   string
	all   bool     // whether to run all test files of the folder, or only files
	files []string // base names
}

// testRules runs the tests of files and folders, folder by folder, in the order of args.
func testRules(args []string) (*ruletest.Results, error) {
	results := &ruletest.Results{}
	if len(args) == 0 {
		set, err := agent.LoadRules("")
		if err != nil {
			return nil, err
		}
		files, err := ruletest.ReadFiles(detector.Shipped())
		if err != nil {
			return nil, err
		}
		return results, results.Run(set, func(*detector.Rule) bool { return true }, files...)
	}
	dirs, err := testDirs(args)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, d := range dirs {
		errs = append(errs, d.run(results))
	}
	return results, errors.Join(errs...)
}

func testDirs(args []string) ([]*testDir, error) {
	var dirs []*testDir
	for _, arg := range args {
		info, err := os.Stat(arg)
		if err != nil {
			return nil, fmt.Errorf("rule tests: %w", err)
		}
		dir, file := filepath.Clean(arg), ""
		if !info.IsDir() {
			dir, file = filepath.Dir(dir), filepath.Base(dir)
			if !ruletest.IsTestFile(file) {
				return nil, fmt.Errorf("rule tests: %s is not named *_test.yaml", arg)
			}
		}
		i := slices.IndexFunc(dirs, func(d *testDir) bool { return d.dir == dir })
		if i < 0 {
			i = len(dirs)
			dirs = append(dirs, &testDir{dir: dir})
		}
		if file == "" {
			dirs[i].all = true
		} else if !slices.Contains(dirs[i].files, file) {
			dirs[i].files = append(dirs[i].files, file)
		}
	}
	return dirs, nil
}

func (d *testDir) run(results *ruletest.Results) error {
	set, err := agent.LoadRules(d.dir)
	if err != nil {
		return err
	}
	files, err := ruletest.ReadFiles(os.DirFS(d.dir))
	if err != nil {
		return err
	}
	if !d.all {
		files = slices.DeleteFunc(files, func(f ruletest.File) bool { return !slices.Contains(d.files, f.Name) })
	}
	for i := range files {
		files[i].Name = filepath.Join(d.dir, files[i].Name)
	}
	return results.Run(set, d.about, files...)
}

// about reports whether the results include the rule: it is in the folder, or in the rule file
// of a selected test file.
func (d *testDir) about(r *detector.Rule) bool {
	if r.Layer == 0 {
		return false // shipped
	}
	stem := strings.TrimSuffix(filepath.Base(r.File), filepath.Ext(r.File))
	return d.all || slices.ContainsFunc(d.files, func(f string) bool {
		return strings.TrimSuffix(f, filepath.Ext(f)) == stem+"_test"
	})
}
