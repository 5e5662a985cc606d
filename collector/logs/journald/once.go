package journald

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/kernosis/kernosis/collector/logs"
)

// Once hands over the existing entries, and returns nil; entries written in the meantime may be
// included. It returns the error of handle or of ctx, or why the journal can't be read, for
// example ErrNoFiles. Use it instead of Run.
func (r *Reader) Once(ctx context.Context, handle func(logs.Item) error) error {
	s := &session{r: r, handle: handle, boot: bootID(), names: map[string]string{}}
	if err := s.begin(); err != nil {
		return err
	}
	command, err := r.command(r.cfg.Root)
	if err != nil {
		return err
	}
	args := slices.DeleteFunc(s.args(), func(a string) bool { return a == "--follow" || a == "--no-tail" })
	c, err := startChild(ctx, r.cfg.Root, command, args)
	if err != nil {
		return err
	}
	s.first = s.cursor != nil
	err = s.decode(c)
	if errors.Is(err, io.EOF) && s.handleErr == nil {
		<-c.done // it has closed its output: it exits, or is killed with ctx
		err = c.exit
	}
	said := c.stop()
	switch {
	case s.handleErr != nil:
		return s.handleErr
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("read journal: %w", errors.Join(err, said))
	case s.entries == 0:
		if err := r.look(); err != nil {
			return fmt.Errorf("read journal: %w", err)
		}
	}
	return nil
}
