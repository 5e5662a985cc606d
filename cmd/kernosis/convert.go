package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/diagnose/convert"
	"github.com/kernosis/kernosis/diagnose/manifest"
)

func newConvert() *cobra.Command {
	var strict bool
	cmd := &cobra.Command{
		Use:   "convert FILE|DIR|-…",
		Short: "Convert KubeDiag manifests",
		Long: `Convert KubeDiag's Operations, OperationSets, Triggers and Diagnoses
(diagnosis.kubediag.org/v1) to kernosis.io/v1alpha1.

Input files are YAML or JSON with any number of objects. In a folder, the .yaml, .yml
and .json files are read; - is the standard input. The result goes to the standard
output. The standard error has a line for each field that is lost, and a note for each
that changes its meaning.

Exit code: 0 converted; 1 with --strict, something would be lost (nothing is written);
2 a file can't be read, or KubeDiag would not accept it (nothing is written).`,
		Example: `  kernosis convert kubediag.yaml >kernosis.yaml
  kubectl get operations,operationsets,triggers -o yaml | kernosis convert -`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			files, err := document.ReadFiles(args, cmd.InOrStdin())
			if err != nil {
				return err
			}
			reader, err := manifest.NewReader()
			if err != nil {
				return output.Failed(err)
			}
			r, err := convert.Convert(reader, files...)
			if err != nil {
				return err
			}
			for i := range r.Findings {
				fmt.Fprintln(cmd.ErrOrStderr(), &r.Findings[i])
			}
			if strict && r.Lost() {
				return output.Failed(errors.New("convert: something would be lost, so nothing is written (--strict)"))
			}
			_, err = cmd.OutOrStdout().Write(r.YAML)
			return output.Failed(err)
		},
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "write nothing and exit with 1 if something would be lost")
	return cmd
}
