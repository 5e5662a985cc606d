package remote

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/vmtest/operationtest"
	"github.com/kernosis/kernosis/vmtest/testserver"
)

func TestWebhook(t *testing.T) {
	answer := 200
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if r.Method != http.MethodPost || r.URL.Path != "/hook/SECRET" || r.Header.Get("Content-Type") != "application/json" ||
			string(b) != `{"node":"n7","podName":"db-0","verdictMessage":"nvme1n1: \u003cdone\u003e","verdictReason":"DiskStalled"}` {
			t.Errorf("%s %s %s", r.Method, r.URL, b)
		}
		w.Header().Set("Location", "http://169.254.169.254/")
		w.WriteHeader(answer)
		fmt.Fprint(w, "text")
	}))
	defer s.Close()
	facts := map[string]string{
		"url": s.URL + "/hook/SECRET", "node": "n7", "podName": "db-0", "verdictReason": "DiskStalled", "verdictMessage": "nvme1n1: <done>", "unknown": "x", "rule": "",
	}
	out, _, err := operationtest.Perform(t, Webhook(operation.Host{}), facts)
	if err != nil || out.Results["status"] != "200 OK" {
		t.Errorf("%+v, %v", out, err)
	}
	for code, want := range map[int]string{
		500: "status 500 Internal Server Error: text", 403: "status 403 Forbidden: text",
		302: `status 302 Found, redirected to "http://169.254.169.254/": redirects are not followed: text`,
	} {
		answer = code
		if _, _, err := operationtest.Perform(t, Webhook(operation.Host{}), facts); err == nil || err.Error() != "POST "+s.URL+": "+want || operationtest.OutcomeUnknown(err) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for url, want := range map[string]string{
		"ftp://x/SECRET": "url: want a URL such as", "/SECRET": "url: want a URL such as", "http://": "url: want a URL such as", "http://a b/SECRET": "url: want a URL such as",
		"http://169.254.169.254/SECRET": "refused: 169.254.169.254 is link-local", "http://127.0.0.1:1/SECRET": "connection refused",
	} {
		_, _, err := operationtest.Perform(t, Webhook(operation.Host{}), map[string]string{"url": url})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "SECRET") || operationtest.OutcomeUnknown(err) {
			t.Errorf("%s: %v, want %s", url, err, want)
		}
	}
}

func TestWebhookVerifies(t *testing.T) {
	ours := testserver.NewAuthority(t, "ours")
	h := tlsServer(t, ours, &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}, nil)
	url := fmt.Sprintf("https://%s:%d/", h.Address, h.Port)
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, ours.PEM, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := operationtest.Perform(t, Webhook(operation.Host{}), map[string]string{"url": url, "caFile": file}); err != nil {
		t.Error(err)
	}
	if _, _, err := operationtest.Perform(t, Webhook(operation.Host{}), map[string]string{"url": url, "caFile": "/no/such"}); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if _, _, err := operationtest.Perform(t, Webhook(operation.Host{}), map[string]string{"url": url}); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Error(err)
	}
}

func TestWebhookThatHangs(t *testing.T) {
	release := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer s.Close()
	defer close(release)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	b := Webhook(operation.Host{})
	if _, err := b.Do(ctx, &operation.Call{Parameters: operation.Values{"url": s.URL}}); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}
