package web

import (
	"fmt"
	"net/http"
	"sync"
	"time"
)

const (
	// maxStreams is how many clients may receive events. A browser opens one stream per visible tab.
	maxStreams = 16
	// sendEvery is the shortest time between two messages to a client.
	sendEvery = 300 * time.Millisecond
	// beatEvery makes clients fetch values that change without a transition, such as the agent's
	// cost. The beat also detects disconnected clients.
	beatEvery = 10 * time.Second
	// sendWithin is how long a client may take to receive a message.
	sendWithin = 5 * time.Second
	// streamFor is how long a stream lasts. The client then reconnects, and its access is
	// checked again.
	streamFor = 5 * time.Minute
	retryMs   = 1000
)

type hub struct {
	mu      sync.Mutex // never held while anything is written
	streams map[chan struct{}]bool
}

func (h *hub) join() (woken chan struct{}, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.streams) >= maxStreams {
		return nil, false
	}
	woken = make(chan struct{}, 1)
	h.streams[woken] = true
	return woken, true
}

func (h *hub) leave(woken chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.streams, woken)
}

func (h *hub) wake() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for woken := range h.streams {
		select {
		case woken <- struct{}{}:
		default: // an earlier wake-up is still pending
		}
	}
}

// events serves a stream of messages that signal changes.
func (p *Page) events(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodHead {
		w.Header().Set("Content-Type", "text/event-stream")
		return
	}
	woken, ok := p.hub.join()
	if !ok {
		w.Header().Set("Retry-After", "10")
		http.Error(w, fmt.Sprintf("too many clients: the limit is %d", maxStreams), http.StatusServiceUnavailable)
		return
	}
	defer p.hub.leave(woken)
	to := http.NewResponseController(w)
	// The server's own deadline is meant for single requests. A disconnected client is detected
	// when a write fails.
	_ = to.SetReadDeadline(time.Time{})
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	send := func(before string) error {
		_ = to.SetWriteDeadline(time.Now().Add(sendWithin)) // fails on a test's recorder, which has no deadlines
		if _, err := fmt.Fprintf(w, "%sevent: changed\ndata: %d\n\n", before, p.version.Load()); err != nil {
			return err
		}
		return to.Flush()
	}
	if send(fmt.Sprintf("retry: %d\n", retryMs)) != nil {
		return
	}
	beat := time.NewTicker(p.beat)
	defer beat.Stop()
	over := time.NewTimer(streamFor)
	defer over.Stop()
	pause := time.NewTimer(sendEvery)
	defer pause.Stop()
	for waits := (<-chan struct{})(nil); ; {
		select {
		case <-r.Context().Done():
			return
		case <-p.ended:
			return
		case <-over.C:
			return
		case <-pause.C:
			waits = woken
			continue
		case <-beat.C:
		case <-waits:
		}
		if send("") != nil {
			return
		}
		waits = nil // until the pause has ended
		pause.Reset(sendEvery)
	}
}
