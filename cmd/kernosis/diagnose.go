package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v4"

	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/manifest"
)

func newDiagnose() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "diagnose",
		Short: "Find the cause of a fault on this machine; no cluster needed",
		Long: `Find the cause of a fault on this machine: run the graph of an OperationSet, and show
the results of earlier runs. See docs/diagnose.md.`,
	}
	cmd.AddCommand(newDiagnoseRun(), newDiagnoseShow(), newDiagnoseSets(), newDiagnoseOperations())
	return cmd
}

type setSource struct {
	files   []string
	shipped string
}

func (s *setSource) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVarP(&s.files, "file", "f", nil, "`file` or folder of manifests; - is the standard input (repeatable)")
	f.StringVar(&s.shipped, "shipped", "", "`name` of a shipped OperationSet: "+strings.Join(manifest.ShippedNames(), ", "))
	completeFlag(cmd, "shipped", manifest.ShippedNames)
}

// load reads the manifests and returns them with the selected OperationSet. Errors begin with the
// command's name.
func (s *setSource) load(cmd *cobra.Command, args []string) (*manifest.Set, *v1alpha1.OperationSet, error) {
	switch {
	case len(s.files) == 0 && s.shipped == "":
		return nil, nil, fmt.Errorf("%s: want a file (-f set.yaml), or --shipped with one of %s", cmd.Name(), strings.Join(manifest.ShippedNames(), ", "))
	case len(s.files) > 0 && s.shipped != "":
		return nil, nil, fmt.Errorf("%s: want -f or --shipped, not both", cmd.Name())
	case s.shipped != "" && len(args) > 0:
		return nil, nil, fmt.Errorf("%s: --shipped already names the OperationSet: omit %.80q", cmd.Name(), args[0])
	case s.shipped != "":
		m, err := manifest.Shipped(s.shipped)
		if err != nil {
			return nil, nil, err
		}
		return m, m.OperationSets[0], nil
	}
	m, err := manifest.Load(s.files, cmd.InOrStdin())
	if err != nil {
		return nil, nil, err
	}
	set, err := chooseSet(cmd.Name(), m, args)
	return m, set, err
}

// chooseSet returns the OperationSet that args name, or the only one.
func chooseSet(command string, m *manifest.Set, args []string) (*v1alpha1.OperationSet, error) {
	var names []string
	for _, s := range m.OperationSets {
		names = append(names, s.Name)
	}
	switch {
	case len(names) == 0:
		return nil, errors.New(command + ": the files have no OperationSet")
	case len(args) == 0 && len(names) == 1:
		return m.OperationSets[0], nil
	case len(args) == 0:
		return nil, fmt.Errorf("%s: the files have %d OperationSets, name one: %s", command, len(names), strings.Join(names, ", "))
	}
	if s := m.OperationSet(args[0]); s != nil {
		return s, nil
	}
	return nil, fmt.Errorf("%s: unknown OperationSet %.80q: want one of %s", command, args[0], strings.Join(names, ", "))
}

func newDiagnoseSets() *cobra.Command {
	var format *output.Format
	cmd := &cobra.Command{
		Use:   "sets [NAME]",
		Short: "List the shipped OperationSets, or print one",
		Long: `List the shipped OperationSets, or print the manifests of one to read, change and run
with -f, or apply to a cluster.

Exit code: 0; 2 there is no such set.`,
		Example: `  kernosis diagnose sets
  kernosis diagnose sets oom-kill >set.yaml`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeFirst(manifest.ShippedNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				file, err := manifest.ShippedFile(args[0])
				if err != nil {
					return err
				}
				return output.Failed(writeManifests(cmd.OutOrStdout(), file, format))
			}
			list := []shippedName{}
			rows := &output.Rows{}
			for _, name := range manifest.ShippedNames() {
				m, err := manifest.Shipped(name)
				if err != nil {
					return output.Failed(err)
				}
				s := shippedName{name, m.OperationSets[0].Annotations[manifest.Description]}
				list = append(list, s)
				rows.Add(s.Name, s.Description)
			}
			w := cmd.OutOrStdout()
			return output.Failed(format.Write(w, list, func() error { return rows.Write(w) }))
		},
	}
	format = output.Add(cmd)
	return cmd
}

type shippedName struct {
	Name        string `json:"name"`
	Description string `json:"description"`
}

// writeManifests writes a file of manifests unchanged, or as a JSON list.
func writeManifests(w io.Writer, file document.File, format *output.Format) error {
	if !format.Is(output.JSON) {
		_, err := w.Write(file.Data)
		return err
	}
	var list []any
	d := yaml.NewDecoder(bytes.NewReader(file.Data))
	for {
		var one any
		switch err := d.Decode(&one); {
		case errors.Is(err, io.EOF):
			return format.Write(w, list, nil)
		case err != nil:
			return err
		}
		list = append(list, one)
	}
}

func stateDirFlag(f *pflag.FlagSet, dir *string) {
	f.StringVar(dir, "state-dir", "/var/lib/kernosis", "state `folder`: its diagnose/ has checkpoints and artifacts")
}
