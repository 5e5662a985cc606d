package kernel

import "errors"

// ErrNotFetched means that the cache holds no such kernel.
var ErrNotFetched = errors.New("not fetched")

// fetchCommand is what a user runs to fill the cache.
const fetchCommand = "make vmtest-kernels"

// SetupError is what this machine lacks, and what its user can do about it. No
// test has run: it is neither a failure nor a success.
type SetupError struct {
	What string // is wrong
	Do   string // to mend it; may be empty
	Err  error  // the cause, part of What where it says more; may be nil
}

func (e *SetupError) Error() string {
	if e.Do == "" {
		return e.What
	}
	return e.What + ": " + e.Do
}

func (e *SetupError) Unwrap() error { return e.Err }
