package podsource

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"

	"github.com/kernosis/kernosis/collector/display"
)

// Asker requests kubelet's pages, over one connection. It is safe for concurrent use.
type Asker struct {
	cfg   KubeletConfig
	base  *url.URL
	trust transport
}

// NewAsker checks the configuration and returns an Asker. It ignores Sink and Log.
func NewAsker(cfg KubeletConfig) (*Asker, error) {
	u, err := cfg.check()
	if err != nil {
		return nil, err
	}
	a := &Asker{cfg: cfg, base: u}
	a.trust.cfg = &a.cfg
	return a, nil
}

// Get requests a page such as "pods". The caller must close the body. A status other than 200 is
// an error with kubelet's message, and [fs.ErrPermission] if the token has no permission.
func (a *Asker) Get(ctx context.Context, page string) (*http.Response, error) {
	client, err := a.trust.client()
	if err != nil {
		return nil, fmt.Errorf("kubelet: %w", err)
	}
	token, err := a.trust.token()
	if err != nil {
		return nil, fmt.Errorf("kubelet: token: %w", err)
	}
	at := a.base.JoinPath(page).String()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("kubelet: %w", err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	if err != nil {
		if ue := (*url.Error)(nil); errors.As(err, &ue) {
			err = ue.Err // without the address, which is in the error already
		}
		return nil, fmt.Errorf("ask kubelet %s: %w", at, err)
	}
	if resp.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(resp.Body, maxSaid)) //nolint:errcheck // of what there is
		_ = resp.Body.Close()
		err := fmt.Errorf("ask kubelet %s: %s: %s", at, display.Safe(resp.Status, 100), display.Safe(string(said), maxSaid))
		if resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden {
			return nil, &refusal{err}
		}
		return nil, err
	}
	return resp, nil
}

// refusal is an error for missing permission: it is [fs.ErrPermission].
type refusal struct{ error }

func (*refusal) Is(target error) bool { return target == fs.ErrPermission }

// Close closes idle connections.
func (a *Asker) Close() { a.trust.close() }
