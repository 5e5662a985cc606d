package kernel

import "errors"

// ErrNotFetched means that the cache does not contain the kernel.
var ErrNotFetched = errors.New("not fetched")

// fetchCommand is the command that fills the cache.
const fetchCommand = "make vmtest-kernels"

// SetupError reports what this machine lacks, and how to fix it. No test has run, so it is neither
// a failure nor a success.
type SetupError struct {
	What string // what is wrong
	Do   string // how to fix it; may be empty
	Err  error  // the cause, included in What if it adds anything; may be nil
}

func (e *SetupError) Error() string {
	if e.Do == "" {
		return e.What
	}
	return e.What + ": " + e.Do
}

func (e *SetupError) Unwrap() error { return e.Err }
