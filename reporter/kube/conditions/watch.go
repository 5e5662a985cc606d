package conditions

import (
	"context"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
)

// sight is an observation of the watch.
type sight struct {
	node *corev1.Node // nil: the API has answered the watch, or has refused it
	gone bool         // the Node was deleted
}

const (
	// watchFor is the shortest time for which a watch is requested; the actual time is random, up
	// to twice as long, as in reflectors.
	watchFor = 5 * time.Minute
	// watchLasted is the duration of a watch after which the backoff starts afresh.
	watchLasted = 30 * time.Second
)

// look watches the own Node until ctx ends. Each watch begins with the Node from the API server's
// cache, so that no GET or LIST is needed first; [ledger.stale] skips versions older than the
// answer to a write.
func (p *Patcher) look(ctx context.Context) {
	backoff := Backoff(firstRetry, lastRetry)
	for ctx.Err() == nil {
		began := time.Now()
		err := p.lookOnce(ctx)
		if time.Since(began) > watchLasted {
			backoff = Backoff(firstRetry, lastRetry)
		}
		if err != nil && ctx.Err() == nil {
			p.config.Log.Debug("watch of the own node ended", "error", err)
		}
		select {
		case <-time.After(backoff.Step()):
		case <-ctx.Done():
		}
	}
}

func (p *Patcher) lookOnce(ctx context.Context) error {
	seconds := int64((watchFor + rand.N(watchFor)) / time.Second)
	w, err := p.config.Client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{
		FieldSelector:   fields.OneTermEqualSelector(metav1.ObjectNameField, p.config.Node).String(),
		ResourceVersion: "0", TimeoutSeconds: &seconds,
	})
	select {
	case p.sights <- sight{}:
	case <-ctx.Done():
	}
	if err != nil {
		return err
	}
	defer w.Stop()
	p.count(func(s *Stats) { s.Watches++ })
	for {
		var e watch.Event
		var open bool
		select {
		case e, open = <-w.ResultChan():
		case <-ctx.Done():
			return ctx.Err()
		}
		if !open {
			return nil
		}
		node, ok := e.Object.(*corev1.Node)
		if !ok { // the Status of an error: our version is too old, or the server shuts down
			return nil
		}
		select {
		case p.sights <- sight{node: node, gone: e.Type == watch.Deleted}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
