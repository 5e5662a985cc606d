package file

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kernosis/kernosis/collector/logs"
)

// Once hands over the lines that are there by now, rotated files and a last line
// without its end included, and returns nil. It returns the error of handle or of
// ctx, or why the file can't be read. It takes the place of Run.
func (r *Reader) Once(ctx context.Context, handle func(logs.Item) error) error {
	s := &follower{r: r, handle: handle, start: r.cfg.Position}
	defer s.close()
	if err := s.look(ctx); err != nil {
		return err
	}
	if s.cur != nil {
		if err := s.hand(time.Now(), true); err != nil {
			return err
		}
	}
	if s.status != "" {
		return fmt.Errorf("log file: %w", errors.New(s.status))
	}
	return ctx.Err()
}
