package kmsg

import (
	"context"
	"errors"

	"github.com/kernosis/kernosis/collector/logs"
)

// Once hands over what is in the log by now, and returns nil. It returns the error
// of handle or of ctx, or why the log can't be read. It takes the place of Run.
func (r *Reader) Once(ctx context.Context, handle func(logs.Item) error) error {
	open := r.open
	r.open = func(ctx context.Context, path string) (device, error) {
		dev, err := open(ctx, path)
		return finite{dev}, err
	}
	err := r.Run(ctx, handle)
	switch {
	case errors.Is(err, errEnd):
		return nil
	case err == nil:
		return ctx.Err()
	}
	return err
}

// errEnd is why a finite device can't be waited for.
var errEnd = errors.New("end of the log")

// finite is a log that ends where there is nothing to read.
type finite struct{ device }

func (finite) wait(context.Context) error { return errEnd }
