package alerts

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

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

func (a *answer) write(w http.ResponseWriter) error {
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
	return json.NewEncoder(w).Encode(a.body)
}
