package start

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"

	"github.com/kernosis/kernosis/diagnose/trigger"
	"github.com/kernosis/kernosis/reporter/web"
)

// handler returns the HTTP handler of all paths. Without TLS nobody can authenticate by
// certificate.
func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	for path, decode := range map[string]func([]byte) (*trigger.Alerts, error){
		PathWebhook: trigger.DecodeWebhook, PathV1: trigger.DecodeAlerts, PathV2: trigger.DecodeAlerts,
	} {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
			a := s.receive(w, r, path, decode)
			s.counts.requests.WithLabelValues(strconv.Itoa(a.code)).Inc()
			s.write(w, a)
		})
	}
	mux.HandleFunc("GET "+PathReady, func(w http.ResponseWriter, _ *http.Request) {
		s.write(w, cmp.Or(s.ready(), &answer{code: http.StatusOK})) // not counted: it is not a sender
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Only authenticated senders may keep connections alive, because their number is limited.
		w.Header().Set("Connection", "close")
		mux.ServeHTTP(w, r)
	})
}

// ready returns nil if alerts are accepted.
func (s *server) ready() *answer {
	if err := s.taker.Ready(); err != nil {
		return unavailable(err) // a retry may reach another process
	}
	return nil
}

// unavailable returns the answer for an error of the taker.
func unavailable(err error) *answer {
	if u, ok := errors.AsType[*notNow](err); ok {
		return later(http.StatusServiceUnavailable, u.why, u.after)
	}
	return later(http.StatusServiceUnavailable, err.Error(), time.Second)
}

// receive handles one request.
func (s *server) receive(w http.ResponseWriter, r *http.Request, path string, decode func([]byte) (*trigger.Alerts, error)) *answer {
	if a := s.ready(); a != nil {
		return a
	}
	who, refused := s.authenticate(r, path)
	if refused != nil {
		return refused
	}
	w.Header().Del("Connection")
	web.KeepConn(r.Context())
	if after := turn(r.Context(), s.senders.Of(who)); after > 0 {
		return later(http.StatusTooManyRequests, fmt.Sprintf("more than %d requests a second", requestRate), after)
	}
	if a := form(r); a != nil {
		return a
	}
	waits, cancel := context.WithTimeout(r.Context(), turnWithin)
	defer cancel()
	if err := s.slots.Acquire(waits, 1); err != nil {
		return later(http.StatusServiceUnavailable, fmt.Sprintf("%d requests are in progress", maxRequests), time.Second)
	}
	defer s.slots.Release(1)
	data, refused := read(w, r)
	if refused != nil {
		return refused
	}
	got, err := decode(data)
	if err != nil {
		s.report.malformed.Do(func() {
			s.log.Warn("alerts: request refused", "sender", who, "path", path, "error", err)
		})
		return refuse(http.StatusBadRequest, err.Error())
	}
	return s.take(r.Context(), who, path, got)
}

// form rejects bodies that are not declared as JSON, or are compressed: senders of alerts do not
// compress, and the size of compressed data is not known in advance.
func form(r *http.Request) *answer {
	if e := r.Header.Values("Content-Encoding"); len(e) > 0 && (len(e) > 1 || e[0] != "" && e[0] != "identity") {
		a := refuse(http.StatusUnsupportedMediaType, "content-encoding: want none")
		a.headers = map[string]string{"Accept-Encoding": "identity"}
		return a
	}
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/json" {
		return refuse(http.StatusUnsupportedMediaType, "content-type: want application/json")
	}
	return nil
}

// read reads a body of limited size.
func read(w http.ResponseWriter, r *http.Request) ([]byte, *answer) {
	tooLarge := func() *answer {
		return refuse(http.StatusRequestEntityTooLarge, fmt.Sprintf("more than %d bytes", trigger.MaxAlertBody))
	}
	if r.ContentLength > trigger.MaxAlertBody {
		return nil, tooLarge()
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, trigger.MaxAlertBody))
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		return nil, tooLarge()
	}
	if err != nil {
		a := refuse(http.StatusBadRequest, "the body is incomplete")
		a.close = true
		return nil, a
	}
	return data, nil
}

// take passes alerts to the taker.
func (s *server) take(ctx context.Context, who, path string, got *trigger.Alerts) *answer {
	a := &answer{code: http.StatusOK, body: body{Received: len(got.Alerts), Omitted: got.Omitted}}
	for _, err := range got.Refused {
		a.Refused = append(a.Refused, err.Error())
	}
	if len(got.Alerts) > 0 {
		ctx, cancel := context.WithTimeout(ctx, takeWithin)
		defer cancel()
		if err := s.taker.Take(ctx, got.Alerts); err != nil {
			return unavailable(err)
		}
	}
	// Counted only now, because a retried request would count twice.
	s.counts.received.Add(float64(len(got.Alerts)))
	s.counts.invalid.Add(float64(got.RefusedCount))
	s.counts.omitted.Add(float64(got.Omitted))
	if got.RefusedCount > 0 || got.Omitted > 0 {
		first := ""
		if len(a.Refused) > 0 {
			first = a.Refused[0]
		}
		s.report.partial.Do(func() {
			s.log.Warn("alerts: some were left out", "sender", who, "path", path, "refused", got.RefusedCount, "first", first, "omitted_by_sender", got.Omitted)
		})
	}
	if len(got.Alerts) == 0 && got.RefusedCount > 0 {
		a.code, a.Error = http.StatusBadRequest, "no alert could be accepted"
	}
	return a
}

// answer is the response to a sender.
type answer struct {
	code    int
	after   time.Duration // Retry-After
	headers map[string]string
	// close ends the connection.
	close bool
	body
}

// body is the response's JSON body.
type body struct {
	// Error is why nothing was accepted.
	Error string `json:"error,omitempty"`
	// Received is how many alerts were accepted.
	Received int `json:"received"`
	// Refused has the rejected alerts, each with position and reason. If there are many, it has the
	// first ones.
	Refused []string `json:"refused,omitempty"`
	// Omitted is how many alerts Alertmanager itself has truncated.
	Omitted int `json:"omitted,omitempty"`
}

func refuse(code int, why string) *answer { return &answer{code: code, body: body{Error: why}} }

func later(code int, why string, after time.Duration) *answer {
	a := refuse(code, why)
	a.after = max(after, time.Second)
	return a
}

func (s *server) write(w http.ResponseWriter, a *answer) {
	h := w.Header()
	for n, v := range a.headers {
		h.Set(n, v)
	}
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	if a.after > 0 {
		h.Set("Retry-After", strconv.Itoa(int((a.after+time.Second-1)/time.Second)))
	}
	if a.close {
		h.Set("Connection", "close")
	}
	w.WriteHeader(a.code)
	if err := json.NewEncoder(w).Encode(a.body); err != nil {
		s.log.Debug("alerts: answer not sent", "error", err)
	}
}
