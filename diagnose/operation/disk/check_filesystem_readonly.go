package disk

import (
	"context"
	"fmt"

	"github.com/kernosis/kernosis/diagnose/operation"
)

func CheckFilesystemReadonly(h operation.Host) operation.Builtin {
	patient := operation.NewPatience()
	return operation.Bounded(operation.Builtin{
		Name: "check-filesystem-readonly",
		Doc: "Checks whether a filesystem that should be writable refuses writes. Verdict FilesystemReadOnly: it stopped after an error (emergency-ro, " +
			"shutdown, or its error policy, which some kernels do not expose), is read-only with recorded errors, or its device is read-only. A " +
			"read-only filesystem without such a sign counts as mounted read-only on purpose.",
		Effect:     operation.Check,
		Parameters: filesystemParameters("any on a disk"),
		Results:    checkedFilesystemResults(),
		Run: func(ctx context.Context, call *operation.Call) (operation.Output, error) {
			return checkFilesystem(h, ctx, patient, call, "FilesystemReadOnly", "NoFilesystemReadOnly", func(f *filesystem) string {
				if f.refusing == "" {
					return ""
				}
				text := fmt.Sprintf("%s refuses writes (%s)", f, f.refusing)
				if s := f.errorText(); s != "" {
					text += ": " + s
				}
				return text
			})
		},
	})
}
