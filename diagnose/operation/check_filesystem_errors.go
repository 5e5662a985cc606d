package operation

import (
	"context"
	"fmt"
	"time"
)

// CheckFilesystemErrors returns the built-in check-filesystem-errors.
func CheckFilesystemErrors(h Host) Builtin {
	patient := newPatience()
	return bounded(Builtin{
		Name: "check-filesystem-errors",
		Doc: "Succeeds if a filesystem remembers errors, with verdict FilesystemErrors. ext4 and btrfs remember them across mounts until they are checked " +
			"or reset; other filesystems remember none.",
		Effect: Check,
		Parameters: append(filesystemParameters("any on a disk"),
			Parameter{Name: "maxAge", Doc: "errors of ext4 whose last is older do not count; 0s: all count", Kind: Duration, Default: "0s"}),
		Results: checkedFilesystemResults(),
		Run: func(ctx context.Context, call *Call) (Output, error) {
			maxAge := call.Parameters.Duration("maxAge")
			return h.checkFilesystem(ctx, patient, call, filesystemErrors, "NoFilesystemErrors", func(f *filesystem) string {
				if f.errors() == 0 || maxAge > 0 && f.ext4 != nil && time.Since(f.ext4.Last.Time) > maxAge {
					return ""
				}
				return fmt.Sprintf("%s: %s", f, f.errorText())
			})
		},
	})
}
