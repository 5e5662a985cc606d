package disk

import (
	"context"
	"fmt"
	"time"

	"github.com/kernosis/kernosis/diagnose/operation"
)

func CheckFilesystemErrors(h operation.Host) operation.Builtin {
	patient := operation.NewPatience()
	return operation.Bounded(operation.Builtin{
		Name: "check-filesystem-errors",
		Doc: "Checks whether a filesystem has recorded errors. Verdict FilesystemErrors. ext4 and btrfs keep errors across mounts until they are checked " +
			"or reset; other filesystems record none.",
		Effect: operation.Check,
		Parameters: append(filesystemParameters("any on a disk"),
			operation.Parameter{Name: "maxAge", Doc: "ignore ext4 filesystems whose last error is older; 0s: all count", Kind: operation.Duration, Default: "0s"}),
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
