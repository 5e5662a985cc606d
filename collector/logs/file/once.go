package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/kernosis/kernosis/collector/logs"
)

// Once hands over the existing lines, including rotated files and an unfinished last line, and
// returns nil. It returns the error of handle or of ctx, or why the file can't be read. Use it
// instead of Run.
func (r *Reader) Once(ctx context.Context, handle func(logs.Item) error) error {
	var last error
	status := r.cfg.Status
	r.cfg.Status = func(err error) { last = err; status(err) }
	s := &follower{r: r, handle: handle, start: r.cfg.Position}
	defer s.close()
	if err := s.look(ctx); err != nil {
		return err
	}
	for s.cur != nil && s.cur.packed != nil && errors.Is(s.failed, io.ErrUnexpectedEOF) {
		// Don't wait for its end.
		if err := s.finish(ctx); err != nil {
			return err
		}
		if err := s.look(ctx); err != nil {
			return err
		}
	}
	if s.cur != nil {
		if err := s.hand(time.Now(), true); err != nil {
			return err
		}
	}
	if last != nil {
		return fmt.Errorf("log file: %w", last)
	}
	return ctx.Err()
}
