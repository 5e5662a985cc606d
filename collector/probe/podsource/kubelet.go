package podsource

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kernosis/kernosis/collector/event"
)

// KubeletConfig says where kubelet is and how to talk to it. At most one of CAFile,
// CertFile and Insecure is set; without any the system's roots are trusted.
type KubeletConfig struct {
	URL string // "https://10.0.0.3:10250"; http only for loopback, without a token
	// CAFile has the certificates of whom kubelet's is signed by, PEM.
	CAFile string
	// CertFile is kubelet's own certificate, PEM, first in the file, as in
	// /var/lib/kubelet/pki/kubelet.crt where kubelet signs itself: it is asked for this
	// very one, whatever name is in it.
	CertFile   string
	Insecure   bool   // believe whoever answers
	ServerName string // in kubelet's certificate, where it is not the address'
	TokenFile  string // bearer token, read anew each time; empty: none is sent
	Every      time.Duration
	Timeout    time.Duration // of one answer
	Sink       Sink
	Log        *slog.Logger
}

const (
	defaultEvery   = 10 * time.Second
	defaultTimeout = 10 * time.Second
	// soonest is how long after an answer kubelet is asked again because somebody wants
	// to know.
	soonest = time.Second
	maxSaid = 300 // of an answer that is an error
)

// Kubelet asks kubelet for its pods.
type Kubelet struct {
	*figures
	cfg   KubeletConfig
	url   string
	trust transport
	ask   chan struct{}
}

var _ prometheus.Collector = (*Kubelet)(nil)

// NewKubelet checks the configuration; nothing is asked yet.
func NewKubelet(cfg KubeletConfig) (*Kubelet, error) {
	u, err := cfg.check()
	if err != nil {
		return nil, err
	}
	if cfg.Sink == nil {
		return nil, errors.New("kubelet: no sink")
	}
	if cfg.Every <= 0 {
		cfg.Every = defaultEvery
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = defaultTimeout
	}
	k := &Kubelet{
		figures: newFigures("kubelet", cfg.URL, cfg.Log), cfg: cfg,
		url: u.JoinPath("pods").String(), ask: make(chan struct{}, 1),
	}
	k.trust.cfg = &k.cfg
	return k, nil
}

// Run asks until ctx ends. What can't be read is counted and told; the pods known stay.
func (k *Kubelet) Run(ctx context.Context) error {
	defer k.trust.close()
	tick := time.NewTicker(k.cfg.Every)
	defer tick.Stop()
	for {
		if err := k.Read(ctx); err != nil && ctx.Err() == nil {
			k.failure(err)
		}
		last := time.Now()
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-k.ask:
			again := time.NewTimer(soonest - time.Since(last))
			select {
			case <-ctx.Done():
				again.Stop()
				return nil
			case <-again.C:
			}
			tick.Reset(k.cfg.Every)
		}
	}
}

// Ask has kubelet asked soon, before the next regular time: for those who see that
// something has changed. It does not wait.
func (k *Kubelet) Ask() {
	select {
	case k.ask <- struct{}{}:
	default:
	}
}

// Read asks once, and hands the pods to the sink. It is for the start, before Run: to
// know whether kubelet answers; not for use beside Run.
func (k *Kubelet) Read(ctx context.Context) error {
	client, err := k.trust.client()
	if err != nil {
		return fmt.Errorf("kubelet: %w", err)
	}
	token, err := k.trust.token()
	if err != nil {
		return fmt.Errorf("kubelet: token: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, k.url, http.NoBody)
	if err != nil {
		return fmt.Errorf("kubelet: %w", err)
	}
	req.Header.Set("Accept", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	if err != nil {
		if ue := (*url.Error)(nil); errors.As(err, &ue) {
			err = ue.Err // without the address: it is said once
		}
		return fmt.Errorf("ask kubelet %s: %w", k.url, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(resp.Body, maxSaid)) //nolint:errcheck // of what there is
		return fmt.Errorf("ask kubelet %s: %s: %s", k.url, event.SafeText(resp.Status, 100), event.SafeText(string(said), maxSaid))
	}
	pods, faults, err := decode(resp.Body, maxAnswer)
	if err != nil {
		return fmt.Errorf("kubelet's pods: %w", err)
	}
	k.read(len(pods), faults)
	k.cfg.Sink(pods)
	return nil
}
