package pods

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// KubeletConfig configures the connection to kubelet. At most one of CAFile, CertFile and
// Insecure may be set; if none is, the system's roots are trusted.
type KubeletConfig struct {
	URL string // "https://10.0.0.3:10250"; http only for loopback, without a token
	// CAFile has the certificates of the CA that signed kubelet's, PEM.
	CAFile string
	// CertFile has kubelet's own certificate, PEM, first in the file, as in
	// /var/lib/kubelet/pki/kubelet.crt where kubelet's certificate is self-signed. kubelet must
	// present this very certificate, whatever name is in it.
	CertFile  string
	Insecure  bool   // skip verification of kubelet's certificate
	TokenFile string // bearer token, read for each request; empty: none is sent
	// InPod: this process runs in a pod of the API server, so a list without any such pod is
	// incomplete.
	InPod bool
}

const (
	askEvery   = 10 * time.Second
	askTimeout = 10 * time.Second // of one request
	// soonest is the minimum time between an answer and the next request that Ask triggers.
	soonest = time.Second
	maxSaid = 300 // of an error response
	// podsPage is the page with kubelet's pods. It needs the permission "get nodes/pods", before
	// 1.33 "get nodes/proxy".
	podsPage = "pods"
	// believeAfter is how long kubelet must list no pods of the API server before the agent trusts
	// that list: a starting kubelet lists only static pods until it has received the others
	// (kubernetes/kubernetes#112119).
	believeAfter = 2 * time.Minute
)

// Verified reports whether the identity of kubelet is verified.
func (c *KubeletConfig) Verified() bool { return strings.HasPrefix(c.URL, "https:") && !c.Insecure }

// Kubelet polls kubelet for its pods.
type Kubelet struct {
	*figures
	sink    Sink
	inPod   bool
	kubelet *Asker
	every   time.Duration // askEvery, except in tests
	ask     chan struct{}
	served  bool      // the latest set has pods of the API server
	partial time.Time // when kubelet began to list none of them; zero: the latest answer was another
	doubted bool      // the latest request failed, or its list was not believed
	count   int       // pods in the latest set
}

// NewKubelet checks the configuration. It sends no request yet.
func NewKubelet(cfg KubeletConfig, sink Sink, log *slog.Logger) (*Kubelet, error) {
	kubelet, err := NewAsker(cfg)
	if err != nil {
		return nil, err
	}
	return &Kubelet{
		figures: newFigures("kubelet", cfg.URL, log), sink: sink, inPod: cfg.InPod, kubelet: kubelet,
		every: askEvery, ask: make(chan struct{}, 1),
	}, nil
}

// Run polls kubelet until ctx ends. It counts and logs failures; the known pods stay.
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

// Ask polls kubelet soon, before the next regular time. Call it when something seems to have
// changed. It does not wait.
func (k *Kubelet) Ask() {
	select {
	case k.ask <- struct{}{}:
	default:
	}
}

// Read polls once and passes the pods to the sink. A list without pods of the API server is an error
// if InPod is set, and otherwise for 2 minutes after a list with such pods. The first list after an
// error is also an error if pods are missing from it: a starting kubelet lists the pods that it has,
// and adds those of the API server one by one, within a moment. Call it at the start, before Run, to
// find out whether kubelet answers. It must not be called while Run runs.
func (k *Kubelet) Read(ctx context.Context) error {
	at, since, doubted := time.Now(), k.partial, k.doubted
	k.partial, k.doubted = time.Time{}, true
	resp, err := k.kubelet.Get(ctx, podsPage)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	pods, faults, served, err := decode(resp.Body, maxAnswer)
	if err != nil {
		return fmt.Errorf("kubelet's pods: %w", err)
	}
	if !served && (k.inPod || k.served) {
		if since.IsZero() {
			since = at
		}
		if k.partial = since; k.inPod || at.Sub(since) < believeAfter {
			return errors.New("kubelet's list has no pod of the API server: kubelet may be starting")
		}
	}
	k.doubted = false
	if served && doubted && len(pods) < k.count {
		return errors.New("kubelet lists fewer pods than before: it may be starting")
	}
	k.served, k.count = served, len(pods)
	k.read(len(pods), faults)
	k.sink(pods, at)
	return nil
}
