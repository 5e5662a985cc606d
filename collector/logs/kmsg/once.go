package kmsg

import (
	"context"
	"errors"

	"github.com/kernosis/kernosis/collector/logs"
)

// Once hands over the existing records, and returns nil. It returns the error of handle or of ctx,
// or why the log can't be read. Use it instead of Run.
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

// errEnd is returned by wait of a finite device.
var errEnd = errors.New("end of the log")

// finite is a log that ends when there is nothing left to read.
type finite struct{ device }

func (finite) wait(context.Context) error { return errEnd }
