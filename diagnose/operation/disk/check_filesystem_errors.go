package disk

import (
	"context"
	"fmt"
	"time"

	"github.com/kernosis/kernosis/diagnose/operation"
)

// CheckFilesystemErrors returns the built-in check-filesystem-errors.
func CheckFilesystemErrors(h operation.Host) operation.Builtin {
	patient := operation.NewPatience()
	return operation.Bounded(operation.Builtin{
		Name: "check-filesystem-errors",
		Doc: "Succeeds if a filesystem remembers errors, with verdict FilesystemErrors. ext4 and btrfs remember them across mounts until they are checked " +
			"or reset; other filesystems remember none.",
		Effect: operation.Check,
		Parameters: append(filesystemParameters("any on a disk"),
			operation.Parameter{Name: "maxAge", Doc: "errors of ext4 whose last is older do not count; 0s: all count", Kind: operation.Duration, Default: "0s"}),
		Results: checkedFilesystemResults(),
		Run: func(ctx context.Context, call *operation.Call) (operation.Output, error) {
			maxAge := call.Parameters.Duration("maxAge")
			return checkFilesystem(h, ctx, patient, call, filesystemErrors, "NoFilesystemErrors", func(f *filesystem) string {
				if f.errors() == 0 || maxAge > 0 && f.ext4 != nil && time.Since(f.ext4.Last.Time) > maxAge {
					return ""
				}
				return fmt.Sprintf("%s: %s", f, f.errorText())
			})
		},
	})
}
