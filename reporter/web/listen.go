package web

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"golang.org/x/sync/errgroup"
)

// ListenAndServe serves at an address until ctx ends. It does nothing if the address is empty.
// It logs the URL with path, which is the start page.
func ListenAndServe(ctx context.Context, g *errgroup.Group, log *slog.Logger, address, path string, to *AccessConfig, h func(*Access) http.Handler) error {
	if address == "" {
		return nil
	}
	access, err := to.For(address)
	if err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	log.Info("serving", "url", access.Scheme()+"://"+l.Addr().String()+path)
	g.Go(func() error { return Serve(ctx, l, h(access), access, to.Counts) })
	return nil
}
