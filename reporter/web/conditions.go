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

// StatusHandler serves what node-problem-detector does at its port: /healthz,
// /conditions (a JSON list of type, status, transition, reason, message) and
// /debug/pprof/. With access, /conditions needs a token, and there is no /debug/pprof/: a
// profile takes CPU and shows memory, and whoever is on the machine can have it.
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
		_ = json.NewEncoder(w).Encode(list) // fails only where the client is gone
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
