package output

import "fmt"

// Exit codes.
const (
	ExitOK     = 0
	ExitFailed = 1 // the work was tried and did not succeed
	ExitInput  = 2 // bad usage, configuration, rules
	ExitOpen   = 3 // the work has no outcome: it was interrupted, waits, or could not find out
)

// ExitError carries an exit code other than ExitInput through cobra.
type ExitError struct {
	Code int
	Err  error // nil: already printed
}

func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit %d", e.Code)
	}
	return e.Err.Error()
}

func (e *ExitError) Unwrap() error { return e.Err }

// Failed marks err as a failure of the work, not of the input (ExitFailed).
func Failed(err error) error {
	if err == nil {
		return nil
	}
	return &ExitError{Code: ExitFailed, Err: err}
}
