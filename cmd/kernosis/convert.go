package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/diagnose/convert"
)

func newConvert() *cobra.Command {
	var strict bool
	cmd := &cobra.Command{
		Use:   "convert FILE|DIR|-…",
		Short: "Turn KubeDiag's manifests into Kernosis'",
		Long: `Turn KubeDiag's Operations, OperationSets, Triggers and Diagnoses
(diagnosis.kubediag.org/v1) into those of kernosis.io/v1alpha1.

Files are YAML or JSON with any number of objects; of a folder its .yaml, .yml and
.json files are read, and - is the standard input. What they become goes to the
standard output. The standard error has a line for each thing that is lost, and for
each that is kept and means something else (note).

Exit code: 0 converted, 1 with --strict something is lost (nothing is written then),
2 a file that can't be read or is not what KubeDiag accepts (nothing is written).`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			files, err := document.ReadFiles(args, cmd.InOrStdin())
			if err != nil {
				return err
			}
			c, err := convert.New()
			if err != nil {
				return failed(err)
			}
			r, err := c.Convert(files...)
			if err != nil {
				return err
			}
			for i := range r.Findings {
				fmt.Fprintln(cmd.ErrOrStderr(), &r.Findings[i])
			}
			if strict && r.Lost() {
				return failed(errors.New("convert: something is lost, so nothing is written (--strict)"))
			}
			_, err = cmd.OutOrStdout().Write(r.YAML)
			return failed(err)
		},
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "write nothing and exit with 1 where something is lost")
	return cmd
}
