package alerts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/kernosis/kernosis/diagnose/trigger"
	"github.com/kernosis/kernosis/reporter/web"
)

// Handler returns the HTTP handler of all paths. Without TLS nobody can authenticate by
// certificate.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	for path, decode := range map[string]func([]byte) (*trigger.Alerts, error){
		PathWebhook: trigger.DecodeWebhook, PathV1: trigger.DecodeAlerts, PathV2: trigger.DecodeAlerts,
	} {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
			s.respond(w, s.receive(w, r, path, decode))
		})
	}
	mux.HandleFunc("GET "+PathReady, func(w http.ResponseWriter, _ *http.Request) {
		a := s.ready()
		if a == nil {
			a = &answer{code: http.StatusOK}
		}
		s.write(w, a) // not counted: it is not a sender
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Only authenticated senders may keep connections alive, because their number is limited.
		w.Header().Set("Connection", "close")
		mux.ServeHTTP(w, r)
	})
}

func (s *Server) respond(w http.ResponseWriter, a *answer) {
	s.counts.answered(a.code)
	s.write(w, a)
}

func (s *Server) write(w http.ResponseWriter, a *answer) {
	if err := a.write(w); err != nil {
		s.cfg.Log.Debug("alerts: answer not sent", "error", err)
	}
}

// ready returns nil if alerts are accepted.
func (s *Server) ready() *answer {
	err := s.cfg.Taker.Ready()
	if err == nil {
		return nil
	}
	return unavailable(err) // a retry may reach another process
}

// unavailable returns the answer for an error of the Taker.
func unavailable(err error) *answer {
	if u := (*Unavailable)(nil); errors.As(err, &u) {
		return later(http.StatusServiceUnavailable, u.Why, u.After)
	}
	return later(http.StatusServiceUnavailable, err.Error(), time.Second)
}

// receive handles one request.
func (s *Server) receive(w http.ResponseWriter, r *http.Request, path string, decode func([]byte) (*trigger.Alerts, error)) *answer {
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
	free, err := s.slot(r.Context())
	if err != nil {
		return later(http.StatusServiceUnavailable, fmt.Sprintf("%d requests are in progress", maxRequests), time.Second)
	}
	defer free()
	data, refused := read(w, r)
	if refused != nil {
		return refused
	}
	got, err := decode(data)
	if err != nil {
		s.report.malformed.Do(func() {
			s.cfg.Log.Warn("alerts: request refused", "sender", who, "path", path, "error", err)
		})
		return refuse(http.StatusBadRequest, err.Error())
	}
	return s.take(r.Context(), who, path, got)
}

// slot waits for a slot for a request with a body.
func (s *Server) slot(ctx context.Context) (free func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, turnWithin)
	defer cancel()
	if err := s.slots.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	return func() { s.slots.Release(1) }, nil
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

// take passes alerts to the Taker.
func (s *Server) take(ctx context.Context, who, path string, got *trigger.Alerts) *answer {
	a := &answer{code: http.StatusOK, body: body{Received: len(got.Alerts), Omitted: got.Omitted}}
	for _, err := range got.Refused {
		a.Refused = append(a.Refused, err.Error())
	}
	if len(got.Alerts) > 0 {
		ctx, cancel := context.WithTimeout(ctx, takeWithin)
		defer cancel()
		if err := s.cfg.Taker.Take(ctx, got.Alerts); err != nil {
			return unavailable(err)
		}
	}
	// Counted only now, because a retried request would count twice.
	s.counts.received.Add(float64(len(got.Alerts)))
	s.counts.invalid.Add(float64(got.RefusedCount))
	s.counts.omitted.Add(float64(got.Omitted))
	if got.RefusedCount > 0 || got.Omitted > 0 {
		s.report.partial.Do(func() {
			s.cfg.Log.Warn("alerts: some were left out", "sender", who, "path", path, "refused", got.RefusedCount, "first", first(a.Refused), "omitted_by_sender", got.Omitted)
		})
	}
	if len(got.Alerts) == 0 && got.RefusedCount > 0 {
		a.code, a.Error = http.StatusBadRequest, "no alert could be accepted"
	}
	return a
}

func first(texts []string) string {
	if len(texts) == 0 {
		return ""
	}
	return texts[0]
}
