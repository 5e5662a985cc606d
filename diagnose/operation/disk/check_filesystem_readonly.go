package disk

import (
	"context"
	"fmt"

	"github.com/kernosis/kernosis/diagnose/operation"
)

// CheckFilesystemReadonly returns the built-in check-filesystem-readonly.
func CheckFilesystemReadonly(h operation.Host) operation.Builtin {
	patient := operation.NewPatience()
	return operation.Bounded(operation.Builtin{
		Name: "check-filesystem-readonly",
		Doc: "Succeeds if a filesystem that is to be written refuses writes, with verdict FilesystemReadOnly: it stopped after an error (emergency-ro, shutdown, or by its policy, which some kernels don't show), " +
			"is read-only and remembers errors, or its device is read-only. One that is read-only without such a sign is taken to be mounted so.",
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
