package podsource

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
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
	CertFile  string
	Insecure  bool   // believe whoever answers
	TokenFile string // bearer token, read anew each time; empty: none is sent
	Sink      Sink
	Log       *slog.Logger
}

const (
	askEvery   = 10 * time.Second
	askTimeout = 10 * time.Second // of one answer
	// soonest is how long after an answer kubelet is asked again because somebody wants
	// to know.
	soonest = time.Second
	maxSaid = 300 // of an answer that is an error
	// podsPage is where kubelet has its pods. It authorises who may get nodes/pods, or before
	// 1.33 nodes/proxy.
	podsPage = "pods"
)

// Verified reports whether who answers proves to be kubelet.
func (c *KubeletConfig) Verified() bool { return strings.HasPrefix(c.URL, "https:") && !c.Insecure }

// Kubelet asks kubelet for its pods.
type Kubelet struct {
	*figures
	cfg     KubeletConfig
	kubelet *Asker
	every   time.Duration // askEvery, or a test's
	ask     chan struct{}
}

// NewKubelet checks the configuration; nothing is asked yet.
func NewKubelet(cfg KubeletConfig) (*Kubelet, error) {
	kubelet, err := NewAsker(cfg)
	if err != nil {
		return nil, err
	}
	if cfg.Sink == nil {
		return nil, errors.New("kubelet: no sink")
	}
	return &Kubelet{figures: newFigures("kubelet", cfg.URL, cfg.Log), cfg: cfg, kubelet: kubelet, every: askEvery, ask: make(chan struct{}, 1)}, nil
}

// Run asks kubelet until ctx ends. Failures are counted and logged; the known pods stay.
func (k *Kubelet) Run(ctx context.Context) error {
	defer k.kubelet.Close()
	tick := time.NewTicker(k.every)
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
			tick.Reset(k.every)
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
	at := time.Now()
	resp, err := k.kubelet.Get(ctx, podsPage)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	pods, faults, err := decode(resp.Body, maxAnswer)
	if err != nil {
		return fmt.Errorf("kubelet's pods: %w", err)
	}
	k.read(len(pods), faults)
	k.cfg.Sink(pods, at)
	return nil
}
