package events

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kernosis/kernosis/vmtest/testenv"
)

// Answers of an overloaded, broken or slow server, as client-go returns them.
func TestAnswersOfATroubledServer(t *testing.T) {
	for _, c := range []struct {
		status int
		want   answer
	}{
		{http.StatusUnauthorized, away},
		{http.StatusForbidden, refused},
		{http.StatusNotFound, gone},            // for example from a proxy
		{http.StatusConflict, exists},          // for a create
		{http.StatusBadRequest, refused},       // a webhook that sets no code
		{http.StatusMethodNotAllowed, refused}, // a webhook may choose any code
		{http.StatusRequestTimeout, away},
		{http.StatusGone, refused},
		{http.StatusTeapot, refused},
		{http.StatusRequestEntityTooLarge, invalid},
		{http.StatusUnsupportedMediaType, invalid},
		{http.StatusUnprocessableEntity, refused}, // a ValidatingAdmissionPolicy
		{http.StatusTooManyRequests, away},
		{http.StatusInternalServerError, away},
		{http.StatusBadGateway, away},
		{http.StatusServiceUnavailable, away},
		{http.StatusGatewayTimeout, away},
	} {
		t.Run(strconv.Itoa(c.status), func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(c.status) }))
			defer server.Close()
			if err := post(t, server.URL, testenv.Within(time.Minute)); read(err) != c.want {
				t.Errorf("%v is taken for %d, want %d", err, read(err), c.want)
			}
		})
	}
	t.Run("slow", func(t *testing.T) {
		release := make(chan struct{})
		server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
		defer server.Close()
		defer close(release)
		err := post(t, server.URL, 50*time.Millisecond)
		if !errors.Is(err, context.DeadlineExceeded) || read(err) != away {
			t.Errorf("%v is taken for %d", err, read(err))
		}
	})
	t.Run("nobody there", func(t *testing.T) {
		server := httptest.NewServer(nil)
		server.Close()
		if err := post(t, server.URL, testenv.Within(time.Minute)); read(err) != away {
			t.Errorf("%v is taken for %d", err, read(err))
		}
	})
}

func post(t *testing.T, url string, within time.Duration) error {
	t.Helper()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: url, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	e := &corev1.Event{}
	e.Name, e.Namespace = "e", "n"
	return clientWriter{client}.create(ctx, e)
}

// The sink waits as long as the server asks, within bounds.
func TestOutageHeedsTheServersWish(t *testing.T) {
	now := time.Unix(1e9, 0)
	var o outage
	if o.failed(now, 7*time.Second); o.until.Sub(now) < 7*time.Second {
		t.Errorf("again after %s", o.until.Sub(now))
	}
	if o.failed(now, 24*time.Hour); o.until.Sub(now) > lastRetry {
		t.Errorf("again after %s", o.until.Sub(now))
	}
	if lasted, was := o.over(now.Add(time.Minute)); !was || lasted != time.Minute {
		t.Error(lasted, was)
	}
	if _, was := o.over(now); was {
		t.Error("an outage ended twice")
	}
}
