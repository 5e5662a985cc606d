package web

import (
	"encoding/json"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/kernosis/kernosis/detector/problem"
)

// nodeCondition is a condition in node-problem-detector's form.
type nodeCondition struct {
	Type       string         `json:"type"`
	Status     problem.Status `json:"status"`
	Transition time.Time      `json:"transition"`
	Reason     string         `json:"reason"`
	Message    string         `json:"message"`
}

// StatusHandler serves the endpoints that node-problem-detector has at its port: /healthz,
// /conditions (a JSON list of type, status, transition, reason, message) and /debug/pprof/. With
// access, /conditions requires a token and /debug/pprof/ is not served, because a profile takes CPU
// and exposes memory; it remains available on the machine itself.
func StatusHandler(healthy Check, conditions func() []problem.Condition, access *Access) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /healthz", access.checkHandler(healthy, nil))
	mux.Handle("GET /conditions", access.guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		list := []nodeCondition{}
		for _, c := range conditions() {
			list = append(list, nodeCondition{c.Type, c.Status, c.LastTransition, c.Reason, c.Message})
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_ = json.NewEncoder(w).Encode(list) // fails only if the client is gone
	})))
	if access != nil {
		return mux
	}
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}
