package ingest

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/ingest/client"
)

// Refusal is the error for a report that was not accepted.
type Refusal struct {
	Outcome    Outcome
	Message    string
	Fields     []client.Field
	RetryAfter time.Duration // for RateLimit
}

// maxFields is how many mistakes are reported: enough to fix the daemon.
const maxFields = 20

func refuse(o Outcome, message string, fields ...client.Field) *Refusal {
	if more := len(fields) - maxFields; more > 0 {
		fields = append(fields[:maxFields:maxFields], client.Field{Message: fmt.Sprintf("and %d more", more)})
	}
	return &Refusal{Outcome: o, Message: message, Fields: fields}
}

func (r *Refusal) Error() string {
	var b strings.Builder
	b.WriteString(r.Message)
	for _, f := range r.Fields {
		fmt.Fprintf(&b, "; %s %s", f.Field, f.Message)
	}
	return b.String()
}

// status returns the HTTP status.
func (r *Refusal) status() int {
	switch r.Outcome {
	case Forbidden:
		return http.StatusForbidden
	case Conflict:
		return http.StatusConflict
	case TooLarge:
		return http.StatusRequestEntityTooLarge
	case RateLimit:
		return http.StatusTooManyRequests
	case Closing:
		return http.StatusServiceUnavailable
	case Accepted, Invalid:
	}
	return http.StatusBadRequest
}

func rateText(field string) string {
	switch field {
	case "reports":
		return fmt.Sprintf("at most %d/s, %d at once", reportsPerSecond, reportBurst)
	case "events":
		return fmt.Sprintf("at most %d/s, %d at once", eventsPerSecond, eventBurst)
	}
	return fmt.Sprintf("at most one change of status or reason in %v, %d at once", time.Duration(float64(time.Second)/changesPerSecond), changeBurst)
}
